"""Plots of the experiments."""
