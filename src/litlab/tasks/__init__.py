"""tasks: say here what it is for."""
