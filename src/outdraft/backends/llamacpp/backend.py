"""llama.cpp's llama-server as a backend."""

import os
from collections.abc import Iterator

from outdraft.backends.backend import Capabilities, Container, Launch, Serving, Traffic
from outdraft.backends.checks import check_supported
from outdraft.backends.flags import HOST, Flag, first_given, make_flags
from outdraft.backends.installation import Installation
from outdraft.backends.llamacpp import spec_flags
from outdraft.catalog import find_entry, local_path, resolve
from outdraft.errors import OptionError
from outdraft.modelspec.head import is_head
from outdraft.speculation import WITH_DRAFT, Speculation

_DEFAULT_SLOTS = 4
_TYPE_VARIABLE = "LLAMA_ARG_SPEC_TYPE"
_HUB_DRAFTS = ("--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft")


class LlamaCpp:
    name = "llamacpp"
    title = "llama.cpp"

    def __init__(self, installation: Installation) -> None:
        self.installation = installation

    def capabilities(self) -> Capabilities:
        samples_drafts = self.installation.has(spec_flags.SAMPLING)
        return Capabilities(
            methods=spec_flags.supported_methods(self.installation),
            # It draws the target's token and compares: the text of a seed stays the same.
            rules=frozenset({"coupled", "rejection"} if samples_drafts else {"coupled"}),
            needs_local_files=True,
            default_num_seqs=_DEFAULT_SLOTS,
            usual_start_s=3.0,
            quantized_files={"int8": "a Q8_0 file", "int4": "a Q4_0 or Q4_K file"},
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        _refuse(serving, speculation)
        check_supported(self, serving, speculation)
        notes = [*self.installation.notes]
        models = [self._file(serving.target)]
        flags = self._serving_flags(models[0], serving, port)
        if speculation.method in WITH_DRAFT and speculation.draft is not None:
            models.append(self._file(speculation.draft))
        flags += spec_flags.speculative_flags(speculation, models[-1], self.installation, notes)
        flags += spec_flags.translate_names(serving.extra, speculation, self.installation, notes)
        env = {_TYPE_VARIABLE: "none"} if os.environ.get(_TYPE_VARIABLE) else {}
        if serving.kv_cache_bytes is not None:
            notes.append("llama.cpp takes no KV cache in bytes: it is as large as -c needs")
        if env:
            notes.append(f"${_TYPE_VARIABLE} is set aside: it would be added to --spec-type")
        program = self.installation.command
        return Launch(program, tuple(flags), env, tuple(notes), models=tuple(models))

    def warnings(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> Iterator[str]:
        flag = first_given(serving.extra, (*spec_flags.DRAFT_MODEL, *_HUB_DRAFTS))
        if speculation.is_off and flag:
            yield (
                f"{flag} loads a draft that llama-server does not use without --spec-type: memory "
                "and no speculation"
            )
        if any("ngram-mod" in word or word == "--spec-default" for word in serving.extra):
            yield "ngram-mod learns across requests: repeated prompts look better than they are"
        if not speculation.is_off and {"logprobs", "top_logprobs", "n_probs"} & traffic.fields:
            yield "logprobs are wrong under speculation in llama.cpp (its issue 27972)"
        fields = ", ".join(sorted(each for each in traffic.fields if each.startswith("spec")))
        if fields and not speculation.is_off:
            yield f"llama-server ignores {fields} in a request: speculation is set at its start"
        if not self.installation.is_here:
            return
        cores = os.cpu_count() or 1
        if serving.threads is None or serving.threads >= cores:
            yield (
                "on a CPU llama.cpp's threads wait for each other: on a busy machine give it fewer "
                f"threads than the {cores} cores"
            )
        if names := sorted(each for each in os.environ if each.startswith("LLAMA_ARG_")):
            yield f"llama-server also reads {', '.join(names)} from the environment"

    def container(self) -> Container:
        return Container(
            "ghcr.io/ggml-org/llama.cpp:server-cuda",
            "pin a build once it is tried",
            starts_engine=True,
            fetches_models=False,
            health_command="curl -fs {url}",
        )

    def _file(self, name: str) -> str:
        """The .gguf file of a model. One for another machine need not be here."""
        is_found = self.installation.is_here or find_entry(name) is not None
        path = resolve(name).path if is_found else local_path(name)
        if path.suffix == ".gguf":
            return str(path) if path.is_file() else name
        inside = sorted(path.glob("*.gguf")) if path.is_dir() else []
        if len(inside) == 1:
            return str(inside[0])
        seen = f"{name} is a folder with {len(inside) or 'no'} .gguf file{'s' * (len(inside) > 1)}"
        if not path.is_dir():
            seen = f"got {name}"
        elif is_head(path):
            seen = f"{name} is the folder of a head"
        raise OptionError(
            f"llama.cpp serves .gguf files, {seen}; name one .gguf file (llama.cpp's "
            "convert_hf_to_gguf.py makes one of a folder)"
        )

    def _serving_flags(self, target: str, serving: Serving, port: int) -> list[Flag]:
        slots, length = serving.max_num_seqs, serving.max_model_len
        # The context is divided by the slots unless they share one pool.
        context = length if slots is None or length is None else length * slots
        each = f", {length} tokens each" if slots is not None else ""
        is_divided = slots is not None and length is None
        split_mode = None
        if serving.tensor_parallel_size > 1:
            modes = self.installation.choices.get("--split-mode", ())
            split_mode = "tensor" if "tensor" in modes else "row"
        return make_flags({
            "-m": target,
            "-np": slots,
            "-c": (context, f"context of all slots together{each}"),
            "--kv-unified": is_divided and self.installation.has("--kv-unified"),
            "--alias": serving.served_name,
            "-t": serving.threads,
            "-tb": serving.threads,
            "--split-mode": split_mode,
            "--no-cache-prompt": not serving.has_prefix_cache,
            "--host": HOST,
            "--port": port,
            "--metrics": True,
        })  # fmt: skip


def _refuse(serving: Serving, speculation: Speculation) -> None:
    size = speculation.draft_tensor_parallel_size
    if size not in (None, 1):
        raise OptionError(
            f"llama.cpp has no tensor parallel size for a draft, got {size}; choose devices with "
            "--spec-draft-device"
        )
    for what, value in (("dtype", serving.dtype), ("quantization", serving.quantization)):
        if value not in (None, "auto", "none"):
            raise OptionError(
                f"llama.cpp serves a file as it is, got {what} {value}; name a .gguf of that type"
            )
    flag = first_given(serving.extra, ("--spec-type", "--spec-default"))
    if flag and speculation.is_off:
        raise OptionError(f"{flag} turns speculation on, but it is off here; leave it out")
