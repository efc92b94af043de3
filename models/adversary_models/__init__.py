"""The declared scenarios: one file each. Copy one to begin your own; ``models/README.md`` says how."""
