"""A model's own tokenizer and chat template, from a folder or a GGUF file.

`tokenizers` does the work. transformers, which takes seconds to import, only converts models
without a tokenizer.json, and the result is kept in the cache folder.
"""

from outdraft.engine.tokenizer.parts import TokenizerParts
from outdraft.engine.tokenizer.text_stream import TextStream
from outdraft.engine.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["TextStream", "Tokenizer", "TokenizerParts", "load_tokenizer"]
