"""What is left of Paddle's first data sets: programs still take a helper from here."""
