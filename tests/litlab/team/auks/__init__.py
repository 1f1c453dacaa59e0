"""Another team's package: the smallest experiments that the tests of litlab run."""
