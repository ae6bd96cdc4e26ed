"""An emitted configuration read back: the command that would run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import product
from typing import Any

import yaml

from outdraft.backends.backend import Serving
from outdraft.emit import EngineConfig
from outdraft.speculation import OFF, Speculation

SCHEDULE = ((1, 4, 4), (5, 32, 2), (33, 64, 0))


def argv_of(text: str, form: str) -> list[str]:
    """The engine's own words, from the program on."""
    if form == "json":
        argv: list[str] = json.loads(text)["command"]
        return argv
    if form == "cli":
        return _command(text.partition("\nEND\n")[2] or text)
    container = container_of(text, form)
    if form == "compose":
        words = [*container.get("entrypoint", ["llama-server"]), *container["command"]]
        words = [word.replace("$$", "$") for word in words]
    else:
        words = [*container.get("command", ["llama-server"]), *container["args"]]
    return _command(words[2]) if words[:2] == ["sh", "-c"] else words


def value_of(config: EngineConfig, name: str) -> str | None:
    return next((flag.values[0] for flag in config.flags if flag.name == name), None)


def container_of(text: str, form: str) -> dict[str, Any]:
    if form == "compose":
        [container] = yaml.safe_load(text)["services"].values()
        return dict(container)
    workload = list(yaml.safe_load_all(text))[-1]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return dict(container)


def _command(script: str) -> list[str]:
    """The last command of a script, without its environment."""
    lines = script.replace("\\\n", " ").splitlines()
    words = shlex.split(lines[-1])
    while words[0] == "exec" or "=" in words[0]:
        words.pop(0)
    return words


def speculations(draft: str, head: str) -> Iterator[Speculation]:
    """Every kind that can be emitted for some engine."""
    yield OFF
    yield Speculation("ngram", k=4, prompt_lookup_min=2, prompt_lookup_max=4)
    yield Speculation("ngram", k=4, schedule=SCHEDULE)
    yield Speculation("suffix", k=6)
    for rule, quantization in product(("coupled", "rejection"), ("none", "int8")):
        yield Speculation("draft_model", draft=draft, k=4, rule=rule, quantization=quantization)
    yield Speculation("draft_model", draft=draft, k=4, schedule=SCHEDULE)
    for rule in ("coupled", "rejection"):
        yield Speculation("eagle", draft=head, k=4, rule=rule)
    yield Speculation("eagle", draft=head, k=4, schedule=SCHEDULE)


def other_methods(heads: str) -> Iterator[Speculation]:
    """Those that only some targets have, and our own engine does not run."""
    for rule in ("coupled", "rejection"):
        yield Speculation("mtp", k=2, rule=rule)
    yield Speculation("mtp", k=2, schedule=((1, 4, 2), (5, 64, 1)))
    yield Speculation("medusa", draft=heads, k=3)


def servings(target: str) -> Iterator[tuple[Serving, int]]:
    """With the number of hosts. SmolLM2 has 9 heads: 3 devices can share them."""
    yield Serving(target), 1
    yield Serving(target, "a name", 2048, 64, dtype="bfloat16"), 1
    yield Serving(target, max_num_seqs=64, tensor_parallel_size=3), 1
    yield Serving(target, max_num_seqs=64, tensor_parallel_size=3), 2
