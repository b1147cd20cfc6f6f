"""What every part builds on: bounded reads of foreign files, typed values, YAML with line numbers."""
