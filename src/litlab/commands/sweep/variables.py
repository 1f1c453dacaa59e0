"""Environment variables by which processes of one command know of each other."""

PACKAGE = "LITLAB_PACKAGE"  # name of the team's package, for the fork server of a sweep
TRIAL = "LITLAB_TRIAL"  # set in all processes of a fit that is a trial of a sweep
