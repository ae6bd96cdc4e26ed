"""The search: candidates, prediction, racing, a journal; ends in Results."""
