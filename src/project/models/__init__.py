"""Models: LightningModules, one experiment a file. YAML names a class by its name alone."""
