"""Digits made by a generative adversarial network."""
