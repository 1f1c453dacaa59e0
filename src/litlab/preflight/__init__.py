"""preflight: say here what it is for."""
