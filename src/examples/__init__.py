"""Examples beside the experiments of a team: each folder can be deleted."""
