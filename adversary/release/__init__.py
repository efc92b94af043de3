"""What is published: measurements, releases, and how a release is drawn."""
