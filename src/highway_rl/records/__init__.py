"""What is written down and drawn: rows, provenance, figures, curves. Imports types and checks."""
