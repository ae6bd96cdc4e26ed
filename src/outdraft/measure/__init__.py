"""Trials: a load on a server, its records, and what they say."""
