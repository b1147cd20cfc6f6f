"""Runs when a person asks: simulation, recorder, live view, reports, pictures, fleets, models, traces."""
