"""Commands with a folder of their own; see `litlab.cli.main` for all of them."""
