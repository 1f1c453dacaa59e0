"""The command ``report``: a page about runs."""
