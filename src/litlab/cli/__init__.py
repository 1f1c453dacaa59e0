"""cli: say here what it is for."""
