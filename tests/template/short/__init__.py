"""How each DataModule is made small for a test: a file of its class' name. One without a file runs two batches."""
