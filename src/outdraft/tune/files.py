"""What a tuning run leaves: results.json, and a configuration for each engine that can run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outdraft.backends.backend import Serving
from outdraft.backends.embedded import settings_of
from outdraft.emit import nearest_config, needs_folder, write_form
from outdraft.errors import OutdraftError
from outdraft.speculation import OFF, Speculation
from outdraft.tune.results import Results
from outdraft.tune.routing import pays_for_all, routing_of
from outdraft.whole_file import write_json, write_text

# file → engine and form
_CONFIGS = {
    "vllm.json": ("vllm", "json"),
    "vllm.sh": ("vllm", "cli"),
    "sglang.sh": ("sglang", "cli"),
    "llama-server.sh": ("llamacpp", "cli"),
}


DRAFT_FOLDER = "draft"
Export = Callable[[str, Path], object]  # a GGUF draft by its name → a Hugging Face folder


def write_results(
    results: Results, folder: Path, export: Export | None = None
) -> tuple[list[str], dict[str, str]]:
    """Names of what was written, and why others were not. An engine that cannot run it gets no
    file, and none that was there before stays.

    `export` makes the folder that vLLM and SGLang need of a GGUF draft; None leaves it to the
    reader, with the command as a note.
    """
    write_json(folder / "results.json", results.to_json())
    speculation = recommended(results)
    serving = Serving(
        target=results.target,
        max_model_len=results.settings.get("max_model_len"),
        tensor_parallel_size=results.settings.get("tensor_parallel_size") or 1,
    )
    written, left_out = ["results.json"], {}
    drafts = _Drafts(speculation, folder / DRAFT_FOLDER, export)
    for name, (engine, form) in _CONFIGS.items():
        try:
            meant, notes = drafts.for_engine(engine)
            config = nearest_config(
                engine, meant, serving, k=_k_of_main(results, meant), notes=notes
            )
            text = _with_reasons(write_form(config, form), form, _reasons(results))
        except OutdraftError as error:
            (folder / name).unlink(missing_ok=True)
            left_out[name] = str(error)
            continue
        write_text(folder / name, text)
        written.append(name)
    if drafts.is_made:
        written.append(f"{DRAFT_FOLDER}/")
    write_text(folder / "outdraft.toml", own_config(results, speculation))
    return [*written, "outdraft.toml"], left_out


class _Drafts:
    """The speculation's draft in the form that an engine reads, made once."""

    def __init__(self, speculation: Speculation, folder: Path, export: Export | None) -> None:
        self._speculation, self._folder, self._export = speculation, folder.resolve(), export
        self.is_made = False

    def for_engine(self, engine: str) -> tuple[Speculation, tuple[str, ...]]:
        draft = self._speculation.draft
        if draft is None or self._speculation.is_off or not needs_folder(engine, draft):
            return self._speculation, ()
        if self._export is None:
            command = f"outdraft export {shlex.quote(draft)} --out {shlex.quote(str(self._folder))}"
            note = f"the draft's folder is not made yet; first run: {command}"
        else:
            if not self.is_made:
                self._export(draft, self._folder)
                self.is_made = True
            note = f"the draft's folder holds {draft} in bfloat16, made by outdraft export"
        return replace(self._speculation, draft=str(self._folder)), (note,)


def _k_of_main(results: Results, speculation: Speculation) -> int:
    """The draft length that the verdict is about, for engines without a schedule; 0 is off."""
    load = results.main
    if load is None or load.best is None or speculation.is_off:
        return 0
    if load.concurrency is not None and speculation.k_at(load.concurrency) == 0:
        return 0
    best = next(arm for arm in load.arms if arm.name == load.best)
    return int(best.speculation["k"])


def recommended(results: Results) -> Speculation:
    """The best arm of the main load, where it is worth having at all; else off."""
    load = results.main
    if load is None or load.best is None or not pays_for_all(load):
        return OFF
    best = next(arm for arm in load.arms if arm.name == load.best)
    speculation = Speculation.from_mapping(
        {key: value for key, value in best.speculation.items() if key != "schedule"}
    )
    if len(results.schedule) < 2:
        return speculation
    settings = {**best.speculation, "schedule": [list(each) for each in results.schedule]}
    largest = max(k for _, _, k in results.schedule)
    return Speculation.from_mapping({**settings, "k": max(largest, 1)})


def _reasons(results: Results) -> list[str]:
    """Why an engine is to be started like this, and where that was found."""
    load = results.main
    if load is None or load.verdict is None:
        return [f"outdraft tune on the {results.backend} backend came to no verdict"]
    parts = ", ".join(load.verdict["ship_for"])
    decision = f"{load.verdict['decision']} {parts}".rstrip()
    where = f"on the {results.backend} backend at {load.name}"
    subject = "off stays" if load.best is None else load.best
    found = f"outdraft tune, {where}: {subject}: {decision}"
    return [found, *load.verdict["reasons"][:1], *filter(None, [routing_of(load)])]


def _with_reasons(text: str, form: str, reasons: list[str]) -> str:
    if form == "json":
        data = json.loads(text)
        return json.dumps({**data, "notes": [*reasons, *data["notes"]]}, indent=2) + "\n"
    return "".join(f"# {each}\n" for each in reasons) + text


def own_config(results: Results, speculation: Speculation) -> str:
    """For `outdraft serve --config outdraft.toml`."""
    lines = ["# For `outdraft serve --config` and `outdraft emit --speculation`."]
    load = results.main
    if load is not None and load.verdict is not None:
        lines += [f"# {load.name}: {load.verdict['decision']}"]
        reasons = [*load.verdict["reasons"], *filter(None, [routing_of(load)])]
        lines += [f"#   {reason}" for reason in reasons]
    lines += ["[serve]", f"target = {json.dumps(results.target)}"]
    if speculation.is_off:
        lines.append("# Speculation stays off: nothing clearly pays for all that comes here.")
        return "\n".join(lines) + "\n"
    config = json.dumps(settings_of(speculation))
    lines += [
        "# The keys are outdraft's; vllm.sh has vLLM's.",
        f"speculative_config = {json.dumps(config)}",
    ]
    return "\n".join(lines) + "\n"
