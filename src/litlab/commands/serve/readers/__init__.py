"""From what was sent to a model's inputs, and from its outputs to an answer: a reader for each kind of model."""
