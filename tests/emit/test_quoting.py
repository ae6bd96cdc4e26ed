"""Whatever users and servers call things: a comment stays a comment, a value stays a value."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outdraft.backends.backend import Serving
from outdraft.backends.flags import Flag
from outdraft.emit import EngineConfig, engine_config, write_form
from outdraft.emit.quoting import comments, quoted
from outdraft.errors import OptionError
from outdraft.speculation import Speculation
from tests.emit.reading import argv_of, container_of

EVIL = "x\ntouch evil\rtouch evil\u2028touch evil\u2029touch evil\x85touch evil\x0b\x1etouch evil"
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
SIGNS = " \t#'\"$`\\:{}[]-|>END;&\x7f\u202e😀"
characters = st.sampled_from(LINE_ENDS + SIGNS) | st.characters(exclude_categories=["Cs"])
outside = st.text(characters, max_size=40)
words = outside.map(lambda text: text.replace("\0", ""))

HEAD = Speculation("eagle", draft="org/head", k=4, schedule=((1, 8, 4), (9, 64, 0)))
BASES = [
    engine_config("vllm", Speculation("ngram"), Serving("org/t"), version="0.32.0"),
    engine_config("vllm", Speculation("ngram"), Serving("org/t"), version="0.32.0", hosts=2),
    engine_config("sglang", HEAD, Serving("org/t"), version="0.5.23"),
    engine_config("sglang", HEAD, Serving("org/t"), version="0.5.23", hosts=2),
    engine_config("llamacpp", Speculation("ngram"), Serving("/t.gguf"), version="any"),
]
SHOW = """show() { printf '%s\\0' "$@"; }; ray() { :; }; cat() { :; }; set -e\n"""


def tainted(base: EngineConfig, text: str, word: str) -> EngineConfig:
    """`text` wherever a note, a version or a reason stands, `word` as a model and as its folder."""
    return replace(
        base,
        program=("show",),
        title=f"{base.title} {text}",
        version=text,
        summary=text,
        notes=(text, *base.notes),
        env={**base.env, "OWN": word},
        flags=(
            *(replace(f, reason=text, details=(text,)) if f.reason else f for f in base.flags),
            Flag("--own", (word,), text, (text,)),
        ),
        models=(f"/{word}", *base.models),
        container=replace(base.container, image=f"i{word}", reason=text),
    )


def run_shell(script: str, folder: Path) -> list[str]:
    """What the script's one command was given; any other command makes it fail."""
    env = {"PATH": "/nowhere", "RANK": "0", "HEAD": "HEAD", "HOSTNAME": "sglang-server-0"}
    script = script.replace("\nexec show", "\nshow")
    if script.startswith("exec show"):
        script = script.removeprefix("exec ")
    done = subprocess.run(
        ["/bin/sh"],
        input=(SHOW + script).encode(),
        cwd=folder,
        env=env,
        capture_output=True,
        check=True,
    )
    assert not done.stderr, done.stderr
    return done.stdout.decode().split("\0")[:-1]


@given(st.sampled_from(BASES), outside, words)
@example(BASES[0], EVIL, EVIL)
@example(BASES[3], EVIL, EVIL + " HEAD: --node-rank RANK")
@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_a_shell_runs_the_command_and_nothing_else(
    tmp_path: Path, base: EngineConfig, text: str, word: str
) -> None:
    config = tainted(base, text, word)
    assert run_shell(write_form(config, "cli"), tmp_path) == list(config.argv[1:])


@pytest.mark.parametrize("form", ["compose", "k8s"])
@given(base=st.sampled_from(BASES), text=outside, word=words)
@example(base=BASES[1], text=EVIL, word=EVIL)
@example(base=BASES[0], text="ports", word="image")
@example(base=BASES[3], text=EVIL, word="x HEAD:\u2028evil: true")
@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_yaml_has_the_same_keys_and_the_same_words(
    tmp_path: Path, form: str, base: EngineConfig, text: str, word: str
) -> None:
    config, plain = tainted(base, text, word), tainted(base, "text", "word")
    emitted = write_form(config, form)
    documents, expected = (
        [*yaml.safe_load_all(each)] for each in (emitted, write_form(plain, form))
    )
    assert _keys(documents) == _keys(expected)
    container = container_of(emitted, form)
    assert container["image"] == f"i{word}"
    if config.hosts == 1:
        assert argv_of(emitted, form)[-2:] == ["--own", word]
        return
    script = container["command" if form == "compose" else "args"][-1]
    script = script.replace("$$", "$") if form == "compose" else script
    assert run_shell(script, tmp_path)[-2:] == ["--own", word]


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _keys(each) for key, each in value.items()}
    return [_keys(each) for each in value] if isinstance(value, list) else None


@given(outside)
@example(EVIL)
def test_a_comment_is_one_line_of_every_format(text: str) -> None:
    [line] = comments([text])
    assert line.startswith("#")
    assert len(line.splitlines()) == 1
    assert tomllib.loads(f"{line}\nkey = 1") == {"key": 1}
    assert yaml.safe_load(f"{line}\nkey: 1") == {"key": 1}


@given(outside)
def test_a_quoted_text_is_the_same_in_yaml_and_toml(text: str) -> None:
    assert yaml.safe_load(f"key: {quoted(text)}") == {"key": text}
    assert tomllib.loads(f"key = {quoted(text)}") == {"key": text}


@pytest.mark.parametrize("name", ["org/a\0b", "org/a\udc80b"])
def test_a_name_that_no_file_of_text_can_hold_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"U\+(0000|DC80)"):
        engine_config("vllm", Speculation("ngram"), Serving(name), version="0.32.0")


def test_a_dollar_in_a_path_is_none_of_composes_variables() -> None:
    serving = Serving("/models/$HOME")
    config = engine_config("vllm", Speculation("ngram"), serving, version="0.32.0")
    volumes = container_of(write_form(config, "compose"), "compose")["volumes"]
    assert "/models/$$HOME:/models/$$HOME:ro" in volumes
