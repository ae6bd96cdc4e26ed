"""The load client: planned requests in, records out, and whether the client kept up."""
