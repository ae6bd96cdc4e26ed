"""Shipped for your tests too: a fake server, tiny models, contract suites."""
