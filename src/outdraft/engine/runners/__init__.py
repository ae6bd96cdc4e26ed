"""Runners: where a model's steps are computed. Target, draft model and head each have one."""
