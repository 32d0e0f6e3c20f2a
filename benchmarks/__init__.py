"""Measurements: run by hand on a machine with a GPU, results under `results/`."""
