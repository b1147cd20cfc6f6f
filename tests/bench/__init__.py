"""Tests of the arithmetic of the benchmarks."""
