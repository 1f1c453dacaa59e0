"""metrics: say here what it is for."""
