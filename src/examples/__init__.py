"""Examples, a folder each: nothing else imports one, and each can be deleted."""
