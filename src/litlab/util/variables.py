"""Environment variables by which processes of one command know of each other."""

CHOSEN_RUN = "LITLAB_RUN"  # tells the ranks that Lightning starts what the first one has found: a run, or "" for none
PACKAGE = "LITLAB_PACKAGE"  # name of the team's package, for the fork server of a sweep
TRIAL = "LITLAB_TRIAL"  # set in all processes of a fit that is a trial of a sweep
