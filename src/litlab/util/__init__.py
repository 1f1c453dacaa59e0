"""util: say here what it is for."""
