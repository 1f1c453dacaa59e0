"""The commands ``schema`` and ``completion``: what editors and shells know of configs and flags."""
