"""The foundation of every part: typed values, YAML with line numbers, bounded reads, documents, limits."""
