"""Environment variables by which processes of one command know of each other."""

CHOSEN_RUN = "LITLAB_RUN"  # for the ranks that Lightning starts: the run that the first one has chosen, or ""
PACKAGE = "LITLAB_PACKAGE"  # name of the team's package, for the fork server of a sweep
TRIAL = "LITLAB_TRIAL"  # set in all processes of a fit that is a trial of a sweep
