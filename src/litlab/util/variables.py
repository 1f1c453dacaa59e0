"""Environment variables by which processes of one command know of each other."""

CHOSEN_RUN = "LITLAB_RUN"  # for the ranks that Lightning starts: the run that the first one has chosen, or ""
TRIAL_ADDRESS = "LITLAB_TRIAL"  # of a fit that is a trial of a sweep: the Unix socket of its worker
