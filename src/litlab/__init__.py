"""litlab: say here what it is for."""
