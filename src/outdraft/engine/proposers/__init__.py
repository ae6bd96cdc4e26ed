"""Proposers: anything that guesses the next tokens of a sequence."""
