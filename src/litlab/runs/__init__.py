"""Run folders: what is recorded in them, resuming a run, listing and comparing runs."""
