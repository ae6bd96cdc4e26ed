"""From measurements to a verdict. Pure: what was measured goes in, a decision comes out."""
