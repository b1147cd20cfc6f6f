"""The contract: what the program prints, answers and writes, kept as text; `README.md` says how to use it."""
