"""A made-up server under speculation: planted acceptance, planted costs, real policies."""
