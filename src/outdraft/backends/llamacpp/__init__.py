"""llama.cpp's llama-server: a binary, or the same server out of the Python package xllamacpp."""
