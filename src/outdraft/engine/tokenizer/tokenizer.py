"""Text to token ids and back, and chats."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers

from outdraft.engine.tokenizer.chat_template import render_chat
from outdraft.engine.tokenizer.folder import folder_parts
from outdraft.engine.tokenizer.gguf import gguf_parts
from outdraft.engine.tokenizer.parts import TokenizerParts
from outdraft.engine.tokenizer.spelling import byte_level_bytes, is_byte_level, sentencepiece_bytes
from outdraft.errors import CorruptFileError, ModelError


class Tokenizer:
    """Text ↔ token ids, exactly as the model was trained with."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._backend = tokenizers.Tokenizer.from_str(parts.tokenizer_json)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._special_tokens = dict(parts.special_tokens)
        self.chat_template = parts.chat_template
        self.vocab_size: int = self._backend.get_vocab_size(with_added_tokens=True)
        added = self._backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        byte_level = is_byte_level(self._backend)
        self._bytes_of = byte_level_bytes if byte_level else sentencepiece_bytes
        # Added tokens are matched in the text and spelled as it is; ▁ is a space there too.
        self._verbatim_ids = frozenset(added) if byte_level else self.special_ids
        self.bos_id = self._id_of("bos_token")
        ends = (*parts.eos_ids, self._id_of("eos_token"))
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(i for i in ends if i is not None))
        self._adds_bos = self._starts_with_bos() if parts.adds_bos is None else parts.adds_bos

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids. `add_special` puts BOS first where the model's own tokenizer does."""
        # The batch form releases the interpreter lock: a long text must not stall a server.
        [encoded] = self._backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoded.ids
        if add_special and self._adds_bos and self.bos_id is not None:
            return [self.bos_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special))

    def apply_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """The token ids of a conversation; the template writes every special token itself."""
        text = self.render_chat(messages, add_generation_prompt=add_generation_prompt)
        return self.encode(text, add_special=False)

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True
    ) -> str:
        if self.chat_template is None:
            raise ModelError("this model has no chat template; give it a plain prompt")
        return render_chat(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._special_tokens,
        )

    def config(self) -> dict[str, object]:
        """As in a `tokenizer_config.json`: the special tokens' texts and the chat template."""
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **self._special_tokens,
            "chat_template": self.chat_template,
        }

    def token_text(self, token_id: int) -> str:
        """One token as text, specials spelled out, a sentencepiece word with its space."""
        piece = self._backend.id_to_token(token_id)
        if piece is None:
            return ""
        if token_id in self.special_ids:
            return str(piece)
        text = self.decode([token_id], skip_special=False)
        return " " + text if piece.startswith("▁") and not text.startswith(" ") else text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token adds to a text, specials spelled out; none for an unknown id."""
        piece = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if piece is None:
            return b""
        return piece.encode() if token_id in self._verbatim_ids else self._bytes_of(piece)

    def vocab(self) -> dict[str, int]:
        """Every token, as the tokenizer spells it, and its id."""
        return dict(self._backend.get_vocab(with_added_tokens=True))

    def tokens(self) -> dict[int, str]:
        """Every token by its id."""
        return {index: token for token, index in self.vocab().items()}

    def _id_of(self, name: str) -> int | None:
        text = self._special_tokens.get(name)
        return None if text is None else self._backend.token_to_id(text)

    def _starts_with_bos(self) -> bool:
        ids = self._backend.encode("a", add_special_tokens=True).ids
        return self.bos_id is not None and ids[:1] == [self.bos_id]


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder or a `.gguf` file."""
    if path.is_dir():
        parts = folder_parts(path)
    elif path.suffix == ".gguf" and path.exists():
        parts = gguf_parts(path)
    else:
        raise ModelError(f"{path} is neither a model folder nor a .gguf file: no tokenizer there")
    try:
        return Tokenizer(parts)
    except Exception as error:  # tokenizers raises bare Exception for whatever it cannot parse
        raise CorruptFileError(f"{path}: the tokenizer cannot be read ({error})") from error
