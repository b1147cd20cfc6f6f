"""What every part builds on: typed values, YAML with line numbers, bounded reads of foreign files, documents."""
