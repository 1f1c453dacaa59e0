"""Checkpoints: which are kept, how they are written and read, and how a run is resumed from them
exactly.
"""
