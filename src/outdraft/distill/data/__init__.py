"""Training texts: prompts, the target's answers, shards of both."""
