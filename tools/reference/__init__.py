"""Writes the generated pages of docs/: `python -m tools.reference docs`."""
