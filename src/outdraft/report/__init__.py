"""Figures for people: what was measured, as tables for a terminal."""
