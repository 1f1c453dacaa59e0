"""Plain networks: nothing of Lightning in here."""
