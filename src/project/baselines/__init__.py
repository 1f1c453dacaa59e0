"""Simple methods that a network has to beat."""
