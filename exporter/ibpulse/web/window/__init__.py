"""A window of raw samples: the request, the values it asks for, and their encodings."""
