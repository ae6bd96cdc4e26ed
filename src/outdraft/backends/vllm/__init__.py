"""vLLM: tensor, pipeline and data parallel, several hosts through Ray."""
