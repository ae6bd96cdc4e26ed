"""Drafts made from a target's own text: `outdraft distill`."""
