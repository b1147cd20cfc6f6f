"""Predicts the traffic of a training job from its parallelism and the hardware, in plain arithmetic.

Every result has a formula and assumptions, and is a range where an input is unknown.
"""
