"""The page: one file, no script, nothing fetched. Text, style and pictures are all in it."""
