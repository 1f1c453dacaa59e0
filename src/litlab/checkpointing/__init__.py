"""checkpointing: say here what it is for."""
