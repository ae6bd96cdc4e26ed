"""Drafts as trainable modules, and the training loop."""
