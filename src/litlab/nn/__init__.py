"""nn: say here what it is for."""
