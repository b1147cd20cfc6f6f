"""What every part builds on: typed values, YAML with line numbers, bounded reads, documents, the program's own name."""
