"""What we test with, shipped because users test with it too."""
