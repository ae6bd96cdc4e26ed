"""OpenAI-compatible HTTP over the engine."""
