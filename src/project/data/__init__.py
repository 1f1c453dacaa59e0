"""Data of the experiments: DataModules that are named for the public data set they download."""
