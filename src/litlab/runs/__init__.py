"""Everything about a run that is no training: its folder, what is recorded in it, going back to it, looking at it."""
