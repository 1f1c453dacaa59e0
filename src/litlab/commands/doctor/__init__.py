"""The command ``doctor``: whether this machine can train, and what to do where it can't."""
