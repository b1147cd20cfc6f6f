"""Windows of raw samples: query, values and encodings."""
