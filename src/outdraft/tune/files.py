"""The files of a tuning run: results.json, and a configuration for each engine that can run it."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from outdraft.backends.backend import Serving
from outdraft.backends.embedded import own_settings
from outdraft.backends.flags import user_flags
from outdraft.backends.options import split_flags
from outdraft.emit import nearest_config, needs_folder, write_form
from outdraft.emit.quoting import comments, quoted
from outdraft.errors import OutdraftError
from outdraft.speculation import Speculation
from outdraft.tune.answer import answer_of, recommended
from outdraft.tune.results import Results
from outdraft.tune.wording import details, headline, results_json
from outdraft.whole_file import write_json, write_text

# file → engine and form
_CONFIGS = {
    "vllm.json": ("vllm", "json"),
    "vllm.sh": ("vllm", "cli"),
    "sglang.sh": ("sglang", "cli"),
    "llama-server.sh": ("llamacpp", "cli"),
}
_OWN_CONFIG, _OWN = "outdraft.toml", "outdraft"
_TITLES = {_OWN: "outdraft", "vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}
DRAFT_FOLDER = "draft"
Export = Callable[[str, Path], object]  # a GGUF draft by its name → a Hugging Face folder


def write_results(
    results: Results, folder: Path, export: Export | None = None
) -> tuple[list[str], dict[str, str]]:
    """Writes the files; returns their names, and why others were left out.

    A configuration that an engine cannot run is not written, and removed where an earlier run left
    one. `export` makes the folder that vLLM and SGLang need of a GGUF draft; with None a note gives
    the command.
    """
    write_json(folder / "results.json", results_json(results))
    speculation = recommended(results)
    reasons, k = _reasons(results), _k_of_main(results, speculation)
    drafts = folder.resolve() / DRAFT_FOLDER
    written, left_out = ["results.json"], {}
    exported: list[str] = []
    for name, (engine, form) in _CONFIGS.items():
        notes = [*filter(None, [carried_over(results, name)]), *reasons]
        meant, draft = speculation, speculation.draft
        try:
            if draft is not None and needs_folder(engine, draft):
                if export is not None and not exported:
                    export(draft, drafts)
                    exported.append(f"{DRAFT_FOLDER}/")
                meant = replace(speculation, draft=str(drafts))
                notes.append(_folder_note(draft, drafts, is_made=bool(exported)))
            served = serving_of(results, engine)
            config = nearest_config(engine, meant, served, k=k, notes=tuple(notes))
            text = write_form(config, form)
        except OutdraftError as error:
            (folder / name).unlink(missing_ok=True)
            left_out[name] = str(error)
        else:
            write_text(folder / name, text)
            written.append(name)
    write_text(folder / _OWN_CONFIG, own_config(results, speculation))
    return [*written, *exported, _OWN_CONFIG], left_out


def serving_of(results: Results, engine: str) -> Serving:
    """As it was measured; flags of the engine that was measured mean nothing to another one."""
    settings = results.settings
    serving = Serving(
        target=results.target,
        max_model_len=settings.get("max_model_len"),
        max_num_seqs=settings.get("max_num_seqs"),
        tensor_parallel_size=settings.get("tensor_parallel_size") or 1,
    )
    if engine != _engine(results):
        return serving
    extra = split_flags(settings.get("engine_flags"))
    return replace(
        serving, dtype=settings.get("dtype"), threads=settings.get("threads"), extra=extra
    )


def carried_over(results: Results, name: str) -> str:
    """That the file `name` is for an engine that was not measured; empty where it was."""
    engine = _OWN if name == _OWN_CONFIG else _CONFIGS.get(name, ("", ""))[0]
    if engine not in _TITLES or engine == _engine(results):
        return ""
    where = (
        f"measured on {_TITLES.get(_engine(results), results.backend)}, not on {_TITLES[engine]}"
    )
    return f"{where}: {caveat(results)}"


def caveat(results: Results) -> str:
    """Of files for engines that were not measured."""
    if recommended(results).is_off:
        return "whether speculation pays there is not known"
    return "the settings carry over, the gain may not"


def _engine(results: Results) -> str:
    return _OWN if results.backend == "embedded" else results.backend


def _folder_note(draft: str, folder: Path, *, is_made: bool) -> str:
    if is_made:
        return f"the draft's folder holds {draft} in bfloat16, made by outdraft export"
    command = f"outdraft export {shlex.quote(draft)} --out {shlex.quote(str(folder))}"
    return f"the draft's folder is not made yet; first run: {command}"


def _k_of_main(results: Results, speculation: Speculation) -> int:
    """The draft length that the verdict is about, for engines without a schedule; 0 is off."""
    load = results.main
    if load is None or load.best_arm is None or speculation.k_at(load.concurrency or 1) == 0:
        return 0
    return load.best_arm.speculation.k


def _reasons(results: Results) -> list[str]:
    """Why an engine should be started like this, and where that was measured."""
    load = results.main
    if load is None or load.verdict is None:
        return [f"outdraft tune on the {results.backend} backend came to no verdict"]
    where = f"on the {results.backend} backend at {load.name}"
    subject = "off stays" if load.best is None else load.best
    decision = f"outdraft tune, {where}: {subject}: {load.verdict.label}"
    answer = answer_of(results)
    return [headline(answer), decision, *load.verdict.reasons[:1], *details(answer)]


def own_config(results: Results, speculation: Speculation) -> str:
    """For `outdraft serve --config outdraft.toml`."""
    answer, load = answer_of(results), results.main
    head = [*filter(None, [carried_over(results, _OWN_CONFIG)])]
    head += ["For `outdraft serve --config` and `outdraft emit --speculation`.", headline(answer)]
    if load is not None and load.verdict is not None:
        head += [f"{load.name}: {load.verdict.decision}"]
        head += [f"  {reason}" for reason in (*load.verdict.reasons, *details(answer))]
    served = _given(results, "max_model_len", "max_num_seqs")
    measured = _given(results, "dtype", "threads", "tensor_parallel_size", "engine_flags")
    is_ours = _engine(results) == _OWN
    if is_ours:  # on one device; its flags are keys of this file
        served |= {key: measured[key] for key in ("dtype", "threads") if key in measured}
        for flag in user_flags(split_flags(measured.get("engine_flags"))):
            served[flag.name.lstrip("-").replace("-", "_")] = " ".join(flag.values) or True
    lines = [*comments(head), "[serve]", *_keys({"target": results.target} | served)]
    if speculation.is_off:
        lines += ["# Speculation stays off.", *_keys({"method": "off"})]
    else:
        config = json.dumps(own_settings(speculation))
        lines.append("# The keys are outdraft's; vllm.sh has vLLM's.")
        lines += _keys({"speculative_config": config})
    if measured and not is_ours:
        lines += ["", "# As it was measured, for `outdraft emit` alone.", "[emit]"]
        lines += _keys({"engine": _engine(results)} | measured)
    return "\n".join(lines) + "\n"


def _given(results: Results, *keys: str) -> dict[str, Any]:
    """Of the run's options those that were given; one GPU is what everybody has."""
    values = {key: results.settings.get(key) for key in keys}
    return {key: value for key, value in values.items()
            if value and (key, value) != ("tensor_parallel_size", 1)}  # fmt: skip


def _keys(settings: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {quoted(value)}" for key, value in settings.items()]
