"""What each figure shows, worked out of the results. Pure: no markup, no files."""
