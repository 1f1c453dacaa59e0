"""The commands ``report``, pages about runs, and ``results``, tables of results in the documentation."""
