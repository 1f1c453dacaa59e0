"""Commands of their own: each folder imports the core, and no other command's inside."""
