"""What the noise is and what it costs; NumPy only."""
