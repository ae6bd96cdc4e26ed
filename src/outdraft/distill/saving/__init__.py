"""Drafts as files."""
