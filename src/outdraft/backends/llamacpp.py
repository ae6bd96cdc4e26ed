"""llama.cpp's llama-server: a binary, or the same server out of the Python package xllamacpp."""

from __future__ import annotations

import os
from collections.abc import Mapping

from outdraft.backends import llamacpp_found
from outdraft.backends.backend import Capabilities, Installed, Launch, Serving, Traffic
from outdraft.backends.llamacpp_flags import (
    check,
    methods_of,
    names_draft,
    rules_of,
    speculates,
    speculation_flags,
    translated,
)
from outdraft.backends.llamacpp_found import Found
from outdraft.backends.process import HOST
from outdraft.catalog import resolve
from outdraft.errors import OptionError
from outdraft.metrics_page import drafted
from outdraft.records import AcceptanceCounts
from outdraft.speculation import WITH_DRAFT, Speculation

_AUTO_SLOTS = 4  # of a llama-server that is not told
_TYPE_VARIABLE = "LLAMA_ARG_SPEC_TYPE"


class LlamaCpp:
    name = "llamacpp"

    def __init__(self, found: Found | None = None) -> None:
        """`found`: of a version that need not be here; None asks the installation."""
        self._found = found

    @property
    def found(self) -> Found:
        if self._found is None:
            self._found = llamacpp_found.detect()
        return self._found

    def detect(self) -> Installed:
        return Installed(version=self.found.version, options=self.found.options)

    def capabilities(self) -> Capabilities:
        return Capabilities(
            methods=frozenset(methods_of(self.found)),
            rules=frozenset(rules_of(self.found)),
            draft_quantizations=frozenset({"none"}),
            has_schedule=False,
            has_draft_tensor_parallel=False,
            acceptance_per_request=True,
            acceptance_per_position=True,  # on /metrics
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        found = self.found
        _refuse(serving, speculation)
        flags, notes = self._serving_flags(serving, found)
        flags += ["--host", HOST, "--port", str(port), "--metrics"]
        check(speculation, found)
        draft = self._file(speculation.draft) if speculation.method in WITH_DRAFT else None
        drafting, more = speculation_flags(speculation, draft, found)
        extra, translations = translated(serving.extra, speculation, found)
        env = {_TYPE_VARIABLE: "none"} if os.environ.get(_TYPE_VARIABLE) else {}
        if env:
            more.append(f"${_TYPE_VARIABLE} is set aside: it would be added to --spec-type")
        return Launch(
            argv=(*found.command, *flags, *drafting, *extra),
            env=env,
            notes=(*notes, *more, *translations),
        )

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        found = [*_of_speculation(serving, speculation, traffic), *_of_load(serving, traffic)]
        names = sorted(each for each in os.environ if each.startswith("LLAMA_ARG_"))
        if names:
            found.append(f"llama-server also reads {', '.join(names)} from the environment")
        return tuple(found)

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        return drafted(page, ("llamacpp",))

    def _file(self, name: str | None) -> str:
        assert name is not None  # a Speculation with such a method has a draft
        if not self.found.is_here:
            return name
        files = resolve(name)
        if files.kind == "gguf":
            return str(files.path)
        inside = sorted(files.path.glob("*.gguf"))
        if len(inside) == 1:
            return str(inside[0])
        seen = f"{len(inside)} .gguf files" if inside else "no .gguf file"
        raise OptionError(
            f"llama.cpp serves .gguf files, {name} is a folder with {seen}; name one .gguf file "
            "(llama.cpp's convert_hf_to_gguf.py makes one of a folder)"
        )

    def _serving_flags(self, serving: Serving, found: Found) -> tuple[list[str], list[str]]:
        flags, notes = ["-m", self._file(serving.target)], []
        slots, length = serving.max_num_seqs, serving.max_model_len
        if slots is not None:
            flags += ["-np", str(slots)]
            if length is not None:
                # The context is divided by the slots unless they share one pool.
                flags += ["-c", str(length * slots)]
                notes.append(f"-c is for all {slots} slots together: {length} tokens each")
            elif "--kv-unified" in found.options:
                flags.append("--kv-unified")
                notes.append("all slots share one KV pool, else each had its part of the context")
        elif length is not None:
            flags += ["-c", str(length)]
        if serving.served_name is not None:
            flags += ["--alias", serving.served_name]
        if serving.threads is not None:
            flags += ["-t", str(serving.threads), "-tb", str(serving.threads)]
        if serving.tensor_parallel_size > 1:
            mode = "tensor" if "tensor" in found.split_modes else "row"
            flags += ["--split-mode", mode]
            notes.append(f"--split-mode {mode} uses every GPU that llama.cpp sees")
        if serving.kv_cache_bytes is not None:
            notes.append("llama.cpp takes no KV cache in bytes: it is as large as -c needs")
        return flags, notes


def _refuse(serving: Serving, speculation: Speculation) -> None:
    for what, value in (("dtype", serving.dtype), ("quantization", serving.quantization)):
        if value not in (None, "auto", "none"):
            raise OptionError(
                f"llama.cpp serves a file as it is, got {what} {value}; name a .gguf of that type"
            )
    flag = speculates(serving.extra)
    if flag and speculation.is_off:
        raise OptionError(f"{flag} turns speculation on, but it is off here; leave it out")


def _of_speculation(serving: Serving, speculation: Speculation, traffic: Traffic) -> list[str]:
    found = []
    extra = serving.extra
    if speculation.is_off and (flag := names_draft(extra)):
        found.append(
            f"{flag} loads a draft that llama-server does not use without --spec-type: memory and "
            "no speculation"
        )
    if any("ngram-mod" in word or word == "--spec-default" for word in extra):
        found.append(
            "ngram-mod learns across requests: prompts that come again look better than they are"
        )
    if speculation.is_off:
        return found
    if {"logprobs", "top_logprobs", "n_probs"} & traffic.fields:
        found.append("logprobs are wrong under speculation in llama.cpp (its issue 27972)")
    fields = {each for each in traffic.fields if each.startswith("spec")}
    if fields:
        found.append(
            f"llama-server ignores {', '.join(sorted(fields))} in a request: speculation is set at "
            "its start"
        )
    return found


def _of_load(serving: Serving, traffic: Traffic) -> list[str]:
    found = []
    cores = os.cpu_count() or 1
    if serving.threads is None or serving.threads >= cores:
        found.append(
            "on a CPU llama.cpp's threads wait for each other: on a busy machine give it fewer "
            f"threads than the {cores} cores"
        )
    slots = serving.max_num_seqs or _AUTO_SLOTS
    if traffic.concurrency > slots:
        found.append(
            f"{traffic.concurrency} requests at a time for {slots} slots: the others wait; "
            "set max_num_seqs"
        )
    if serving.max_model_len is not None and traffic.longest > serving.max_model_len:
        found.append(
            f"the longest request needs {traffic.longest} tokens, a slot has "
            f"{serving.max_model_len}"
        )
    return found
