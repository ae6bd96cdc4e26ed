"""Distillation: a draft learns a target from texts that the target writes itself.

options      of the command line · settings: what to make and how; no torch
pipeline     runs the stages data → train → evaluate
target       the model that is learned from · network, decode_attention: how it is computed here
data/        prompts → sampler → shards; dataset runs it all
training/    small_model, head_model → drafts (first weights) → train
saving/      folder and gguf_file write a draft; export rewrites one for other engines
evaluation   acceptance along held-out texts, and in the engine
card         the draft's README.md
"""
