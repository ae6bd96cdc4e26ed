"""What a tuning run leaves: results.json, and a configuration for each engine that can run it."""

from __future__ import annotations

import json
from pathlib import Path

from outdraft.backends.backend import Serving
from outdraft.backends.embedded import settings_of
from outdraft.emit import engine_config, write_form
from outdraft.errors import OutdraftError
from outdraft.speculation import OFF, Speculation
from outdraft.tune.results import Results
from outdraft.whole_file import write_json, write_text

# file → engine and form
_CONFIGS = {
    "vllm.json": ("vllm", "json"),
    "vllm.sh": ("vllm", "cli"),
    "sglang.sh": ("sglang", "cli"),
    "llama-server.sh": ("llamacpp", "cli"),
}


def write_results(results: Results, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Names of what was written, and why others were not. An engine that cannot run it gets no
    file, and none that was there before stays."""
    write_json(folder / "results.json", results.to_json())
    speculation = recommended(results)
    serving = Serving(
        target=results.target,
        max_model_len=results.settings.get("max_model_len"),
        tensor_parallel_size=results.settings.get("tensor_parallel_size") or 1,
    )
    written, left_out = ["results.json"], {}
    for name, (engine, form) in _CONFIGS.items():
        try:
            text = write_form(engine_config(engine, speculation, serving), form)
            text = _with_reasons(text, form, _reasons(results))
        except OutdraftError as error:
            (folder / name).unlink(missing_ok=True)
            left_out[name] = str(error)
            continue
        write_text(folder / name, text)
        written.append(name)
    write_text(folder / "outdraft.toml", own_config(results, speculation))
    return [*written, "outdraft.toml"], left_out


def recommended(results: Results) -> Speculation:
    """The best arm of the main load, where it is worth having at all; else off."""
    load = results.main
    if load is None or load.best is None or load.verdict is None:
        return OFF
    if load.verdict["decision"] not in ("SHIP", "SHIP FOR"):
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
    return [f"outdraft tune, {where}: {subject}: {decision}", *load.verdict["reasons"][:1]]


def _with_reasons(text: str, form: str, reasons: list[str]) -> str:
    if form == "json":
        data = json.loads(text)
        return json.dumps({**data, "notes": [*reasons, *data["notes"]]}, indent=2) + "\n"
    return "".join(f"# {each}\n" for each in reasons) + text


def own_config(results: Results, speculation: Speculation) -> str:
    """For `outdraft serve --config outdraft.toml`."""
    lines = ["# For `outdraft serve --config outdraft.toml`; flags win over this file."]
    load = results.main
    if load is not None and load.verdict is not None:
        lines += [f"# {load.name}: {load.verdict['decision']}"]
        lines += [f"#   {reason}" for reason in load.verdict["reasons"]]
    lines += ["[serve]", f"target = {json.dumps(results.target)}"]
    if speculation.is_off:
        lines.append("# Speculation stays off: nothing was found that clearly pays here.")
        return "\n".join(lines) + "\n"
    config = json.dumps(settings_of(speculation))
    lines += ["# As vLLM writes it too.", f"speculative_config = {json.dumps(config)}"]
    return "\n".join(lines) + "\n"
