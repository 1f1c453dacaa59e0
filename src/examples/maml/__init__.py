"""Meta-learning of sinusoids."""
