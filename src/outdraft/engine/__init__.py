"""The speculative engine. Torch lives here and nowhere below."""
