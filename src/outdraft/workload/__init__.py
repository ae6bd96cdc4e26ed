"""Prompts, temperatures and arrivals: what is sent to a server, and when."""
