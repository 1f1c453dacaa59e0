"""A run beside its training: its folder, what is recorded in it, going on with it, listing and comparing."""
