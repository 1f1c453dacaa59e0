"""Next characters of any text, and a prompt continued."""
