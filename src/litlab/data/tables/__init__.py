"""Tables of numbers and categories."""
