"""Environment variables by which processes of one command know of each other."""

CHOSEN_RUN = "LITLAB_RUN"  # tells the ranks that Lightning starts what the first one has found: a run, or "" for none
TRIAL_ADDRESS = "LITLAB_TRIAL"  # of a fit that is a trial of a sweep: the Unix socket of its worker
