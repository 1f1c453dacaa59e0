"""``python -m PACKAGE export``: a run as a folder that works without this project."""
