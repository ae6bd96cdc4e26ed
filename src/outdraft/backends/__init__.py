"""The engines a trial can run on: how each is started, what it can do, what it counts."""
