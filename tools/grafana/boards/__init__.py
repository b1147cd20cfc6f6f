"""The boards: which panels answer which question. They must not write PromQL from names of their own."""
