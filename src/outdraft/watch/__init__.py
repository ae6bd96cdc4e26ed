"""Is speculation paying now? Many servers, read over time."""
