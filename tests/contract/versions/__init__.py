"""Whether another version of the program answers the same inputs with the same bytes."""
