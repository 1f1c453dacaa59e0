"""The command ``schema``: what editors know of configs."""
