"""What was done to an exchange, for people to read."""
