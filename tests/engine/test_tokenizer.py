"""Text survives the round trip, streams without broken characters, and templates render."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
import tokenizers
from tokenizers import decoders, models

from outdraft.engine.tokenizer import (
    TextStream,
    Tokenizer,
    TokenizerParts,
    load_tokenizer,
)
from outdraft.engine.tokenizer.gguf import convert
from outdraft.errors import CorruptFileError, ModelError, RequestError
from outdraft.modelspec.vocabulary import vocabulary_difference
from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from outdraft.testing.tiny_tokenizer import CHAT_TEMPLATE, TURN_END_ID, byte_spelling

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two  spaces   and    more ",
    "line\nline\r\n\n\ttab",
    "12345 3.14159 x1y2 -7 1,000,000",
    "naïve café Ünïcode ﬁ ½ ¼",
    "日本語のテキスト 中文 한국어 العربية",
    "👩‍👩‍👧‍👦 😀🏳️‍🌈",
    "def f(x: int) -> str:\n    return f'{x:>4}'  # ok\n        y = 42\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "it's we'll I'D they've",
]
MESSAGES = [{"role": "user", "content": "Hi é😀"}]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(tiny_model(tmp_path_factory.mktemp("tiny"), "llama"))


def sentencepiece_like() -> Tokenizer:
    """A Llama-2-style tokenizer: ▁ for spaces, bytes as <0xXX>, the first space dropped."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += [*"▁abHi!", "▁H", "▁Hi", "▁a", "▁b"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={word: i for i, word in enumerate(words)},
            merges=[("▁", "H"), ("▁H", "i"), ("▁", "a"), ("▁", "b")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<s>", "</s>"])
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return Tokenizer(TokenizerParts(backend.to_str(), True, (2,), None, special))


def streamed(tokenizer: Tokenizer, ids: list[int], step: int) -> str:
    stream = TextStream(tokenizer)
    pieces = [stream.feed(ids[i : i + step]) for i in range(0, len(ids), step)]
    assert not any("\ufffd" in piece for piece in pieces)
    return "".join(pieces) + stream.finish()


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip_and_stream(tiny: Tokenizer, text: str) -> None:
    ids = tiny.encode(text)
    assert tiny.decode(ids, skip_special=False) == text
    for step in (1, 2, 5):
        assert streamed(tiny, ids, step) == tiny.decode(ids)


def test_the_parts_of_a_folder(tiny: Tokenizer) -> None:
    assert tiny.vocab_size == 384
    assert tiny.bos_id == 0
    assert tiny.eos_ids == (0,)
    assert tiny.special_ids == {0, 1, 2}
    assert tiny.encode("a") == tiny.encode("a", add_special=False)  # this one adds no BOS
    assert tiny.token_text(TURN_END_ID) == "<|im_end|>"
    assert tiny.token_text(tiny.encode(" the")[0]) == " the"
    assert tiny.token_text(10_000) == ""


def test_matches_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tiny_model(tmp_path, "qwen3")
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.vocab() == theirs.get_vocab()
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
    for prompt in (True, False):
        rendered = theirs.apply_chat_template(
            MESSAGES, add_generation_prompt=prompt, tokenize=False
        )
        assert ours.render_chat(MESSAGES, add_generation_prompt=prompt) == rendered
        ids = theirs.encode(rendered, add_special_tokens=False)
        assert ours.apply_chat(MESSAGES, add_generation_prompt=prompt) == ids


def test_bos_where_the_model_says(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama")
    config = folder / "tokenizer_config.json"
    contents = json.loads(config.read_text())
    config.write_text(json.dumps({**contents, "add_bos_token": True}))
    assert load_tokenizer(folder).encode("the") == [0, *load_tokenizer(folder).encode("the")[1:]]
    # Llama 3 says nothing in its config: the post-processor of tokenizer.json adds it.
    del contents["add_bos_token"]
    config.write_text(json.dumps(contents))
    assert load_tokenizer(folder).encode("the")[0] != 0
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    backend.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("the")[0] == 0
    assert tokenizer.encode("the", add_special=False)[0] != 0


def test_eos_template_and_object_tokens(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama")
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["bos_token"] = {"content": "<|im_start|>", "special": True}
    config["chat_template"] = [{"name": "default", "template": "{{ bos_token }}named"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_ids == (2, 0)
    assert tokenizer.bos_id == 1
    assert tokenizer.render_chat(MESSAGES) == "<|im_start|>named"
    (folder / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(folder).render_chat(MESSAGES) == "from the file"


def test_template_language(tiny: Tokenizer) -> None:
    def rendered(template: str) -> str:
        return Tokenizer(
            TokenizerParts(json_of(tiny), False, (), template, {"eos_token": "<|im_end|>"})
        ).render_chat(MESSAGES)

    assert rendered("{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}") == "1"
    assert (
        rendered("{% if true %}\n  {% set x = 1 %}\nx{{ eos_token }}{% endif %}") == "x<|im_end|>"
    )
    assert rendered("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert rendered("{% generation %}text{% endgeneration %}") == "text"
    assert len(rendered("{{ strftime_now('%Y') }}")) == 4
    with pytest.raises(RequestError, match="refuses these messages: only users"):
        rendered("{{ raise_exception('only users') }}")
    with pytest.raises(ModelError, match="cannot be rendered"):
        rendered("{% if %}")
    with pytest.raises(ModelError, match="cannot be rendered"):  # the sandbox
        rendered("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(ModelError, match="no chat template"):
        Tokenizer(TokenizerParts(json_of(tiny), False, ())).apply_chat(MESSAGES)


def json_of(tokenizer: Tokenizer) -> str:
    text: str = tokenizer._backend.to_str()
    return text


def test_stream_holds_back_half_characters(tiny: Tokenizer) -> None:
    ids = tiny.encode("a😀b")
    stream = TextStream(tiny)
    assert [stream.feed([token]) for token in ids] == ["a", "", "", "", "😀", "b"]
    cut = TextStream(tiny)
    assert cut.feed(ids[:3]) == "a"
    assert cut.finish() == "\ufffd"
    assert cut.finish() == ""


def test_stream_of_a_sentencepiece_tokenizer() -> None:
    tokenizer = sentencepiece_like()
    for text in ("Hi a b", "Hi 😀 a", "  a  b!", "é"):
        ids = tokenizer.encode(text, add_special=False)
        assert tokenizer.decode(ids) == text
        assert streamed(tokenizer, ids, 1) == text
    assert tokenizer.encode("a")[0] == tokenizer.bos_id == 1
    ids = tokenizer.encode("Hi a", add_special=False)
    assert TextStream(tokenizer).feed(ids[1:]) == "a"
    assert TextStream(tokenizer, after=ids[:1]).feed(ids[1:]) == " a"
    assert tokenizer.token_text(ids[1]) == " a"


def first_difference(target: Tokenizer, draft: Tokenizer) -> str | None:
    return vocabulary_difference(target.tokens(), draft.tokens())


def test_first_difference(tmp_path: Path, tiny: Tokenizer) -> None:
    assert first_difference(tiny, tiny) is None
    small = load_tokenizer(tiny_model(tmp_path, "llama", vocab=320))
    message = first_difference(tiny, small)
    assert message is not None
    assert "384 tokens, the draft's 320" in message
    assert "id 320:" in message
    assert message.endswith("nothing in the draft")
    other = first_difference(tiny, sentencepiece_like())
    assert other is not None
    assert "id 0: '<|endoftext|>' in the target, '<unk>' in the draft" in other


def test_gguf_equals_the_folder(tmp_path: Path, own_cache: Path, tiny: Tokenizer) -> None:
    tokenizer = load_tokenizer(tiny_gguf(tmp_path / "m.gguf", vocab=500))  # padded: [PAD384] …
    assert first_difference(tiny, tokenizer) is None
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.eos_ids == (0, 2)
    for text in TEXTS:
        assert tokenizer.encode(text) == tiny.encode(text)


def test_gguf_is_converted_once(tmp_path: Path, own_cache: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    first = load_tokenizer(path)
    (kept,) = (own_cache / "tokenizers").iterdir()
    before = kept.stat().st_mtime_ns
    again = load_tokenizer(path.rename(tmp_path / "renamed.gguf"))
    assert kept.stat().st_mtime_ns == before
    assert first.vocab() == again.vocab()
    assert (first.eos_ids, first.bos_id) == (again.eos_ids, again.bos_id)
    kept.write_text('{"tokenizer_json": "')  # cut short: made again
    assert load_tokenizer(tmp_path / "renamed.gguf").vocab() == first.vocab()
    json.loads(kept.read_text())


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "file"))
    assert load_tokenizer(tiny_gguf(tmp_path / "m.gguf")).vocab_size == 384


def byte_level_gguf(path: Path, pre: str, words: list[str]) -> Path:
    """A GGUF with a byte-level vocabulary whose merges build `words`, split by rule `pre`."""
    spelling = byte_spelling()
    tokens, merges = ["<|begin|>", "<think>", *spelling.values()], []
    for word in words:
        letters = [spelling[byte] for byte in word.encode()]
        left = letters[0]
        for right in letters[1:]:
            if left + right not in tokens:
                tokens.append(left + right)
                merges.append(f"{left} {right}")
            left += right
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 4] + [1] * (len(tokens) - 2))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    for name in ("context_length", "embedding_length", "block_count", "feed_forward_length"):
        getattr(writer, f"add_{name}")(32)
    writer.add_head_count(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken", "gpt-2"])
def test_split_rules_are_those_of_transformers(tmp_path: Path, pre: str) -> None:
    from transformers import AutoTokenizer

    words = ["12", "123", "1234", "    ", "   ", "'s", "'S", "\n\n", " \n", ".\n", " the", "日本"]
    path = byte_level_gguf(tmp_path / "m.gguf", pre, words)
    ours = Tokenizer(convert(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in [*TEXTS, "1234 12345\n\n  .\n    x = 1234;\n", "it's IT'S", "a<think>b"]:
        assert ours.encode(text, add_special=False) == theirs.encode(
            text, add_special_tokens=False
        ), text
    assert (ours.encode("a")[0] == ours.bos_id) == (pre in ("llama-bpe", "tekken"))
    assert 1 not in ours.special_ids
    assert ours.encode("<think>", add_special=False) == [1]


def test_smollm_splits_single_digits(tmp_path: Path) -> None:
    tokenizer = Tokenizer(convert(byte_level_gguf(tmp_path / "m.gguf", "smollm", ["12", "   "])))
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("x   12")]
    assert pieces == ["x", "   ", "1", "2"]


def test_sentencepiece_gguf_goes_through_transformers(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "m.gguf"
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁Hi", "▁a", "▁H", "▁", "H", "i", "a", "b", "!"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([float(-i) for i in range(len(tokens))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * 9)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    finish(writer)
    tokenizer = load_tokenizer(path)
    ids = tokenizer.encode("Hi ab!")
    assert [tokens[i] for i in ids] == ["<s>", "▁Hi", "▁a", "b", "!"]
    assert tokenizer.decode(ids) == "Hi ab!"
    assert tokenizer.eos_ids == (2,)
    assert streamed(tokenizer, tokenizer.encode("Hi 😀 a"), 1) == "Hi 😀 a"


def test_a_folder_without_tokenizer_json(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama")
    expected = load_tokenizer(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "GPT2Tokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("the draft model\n") == expected.encode("the draft model\n")


def test_bad_files(tmp_path: Path, own_cache: Path) -> None:
    folder = tiny_model(tmp_path / "f", "llama")
    (folder / "tokenizer.json").write_text('{"version": ')
    with pytest.raises(CorruptFileError, match="the tokenizer cannot be read"):
        load_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(CorruptFileError, match=r"tokenizer_config\.json is not JSON"):
        load_tokenizer(folder)
    with pytest.raises(ModelError, match="no tokenizer there"):
        load_tokenizer(tmp_path / "nothing")
    empty = tmp_path / "e.gguf"
    finish(gguf.GGUFWriter(empty, "llama"))
    with pytest.raises(ModelError, match="holds no tokenizer"):
        load_tokenizer(empty)


def test_starting_up_imports_no_transformers(tmp_path: Path, own_cache: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    code = (
        "import sys; from pathlib import Path;"
        "from outdraft.engine.tokenizer import load_tokenizer;"
        f"load_tokenizer(Path({str(path)!r}));"
        "print('transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.model
def test_smollm2_from_its_gguf() -> None:
    from outdraft.catalog import resolve

    path = Path(resolve("smollm2-135m").path)
    tokenizer = load_tokenizer(path)
    listed = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    assert tokenizer.vocab() == {token: i for i, token in enumerate(listed)}
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.eos_ids == (2, 0)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids, skip_special=False) == text
        assert streamed(tokenizer, ids, 1) == tokenizer.decode(ids)
    assert tokenizer.encode("<|im_start|>user\n") == [1, 4093, 198]
    digits = [tokenizer.token_text(i) for i in tokenizer.encode("x =    42")]
    assert digits == ["x", " =", "    ", "4", "2"]  # its own rule; a plain GPT-2 split differs
    chat = tokenizer.decode(tokenizer.apply_chat(MESSAGES), skip_special=False)
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert chat.endswith("<|im_start|>user\nHi é😀<|im_end|>\n<|im_start|>assistant\n")
