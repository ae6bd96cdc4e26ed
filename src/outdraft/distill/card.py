"""The model card: README.md of a draft's folder, from what the stages wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COMMANDS = {"model": "--method draft_model", "head": "--method eagle"}


def model_card(report: Mapping[str, Any]) -> str:
    """`report`: the contents of distill.json. `remarks` there, put in by hand, are lines on what
    else was done in training."""
    target, kind = report["target"], report["kind"]
    licence = target.get("licence")
    lines = [
        *([f"---\nlicense: {licence.lower()}\n---\n"] if licence else []),
        f"# A draft {kind} for {target['name']}",
        "",
        f"Made by `outdraft distill` (outdraft {report['version']}) for speculative decoding of "
        f"{target['name']}; of no use for anything else.",
        "",
        "```",
        f"outdraft generate \"Why is the sky blue?\" --target {target['name']} "
        f"{_COMMANDS[kind]} --draft THIS_FOLDER --k {report['k']}",
        "```",
        "",
        "## What it is",
        *(f"- {name.replace('_', ' ')}: {value}" for name, value in report["shape"].items()),
        "",
        "## Data",
        f"{report['data']['texts']:,} texts with {report['data']['answer_tokens']:,} answer tokens,"
        f" all written by {target['name']} itself at temperatures from 0 (half of them) to 1. "
        "Prompts: the training part of outdraft's own sets"
        + (f" and of {report['data']['prompts']}" if report["data"].get("prompts") else "")
        + ", parts of them put together anew, user turns the target wrote itself, and texts of "
        "the target to be summarized, translated, searched and edited. A third of every prompt "
        "category was held out: never trained on, and what the figures below are measured on.",
        "",
        "## Training",
        *_training(report),
        "",
        "## Acceptance on held-out prompts",
        *_acceptance(report),
        "",
        "## Licence",
        f"That of the target: {licence}." if licence else
        "That of the target, whose files do not name one: look it up before you pass this on.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _training(report: Mapping[str, Any]) -> list[str]:
    course = report.get("training")
    if course is None:
        return ["Not trained yet."]
    return [
        f"{course['step']:,} steps over {course['tokens']:,} tokens in {course['seconds']:.0f} s "
        f"on {report['device']}, in the end at a loss of {course['loss']:.3f}. Distillation from "
        "the target's likeliest tokens"
        + ("; unrolled over the head's own predictions." if report["kind"] == "head" else "."),
        *report.get("remarks", []),
    ]


def _acceptance(report: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    k = report["k"]
    for key, words in (
        ("measured", f"Measured with outdraft's engine at draft length {k}:"),
        ("estimated", f"Counted along the target's own texts at draft length {k}:"),
    ):
        found = report.get(key)
        if not found:
            continue
        lines += [
            words,
            "first token is the share of rounds whose first draft token was accepted, "
            "acceptance length the tokens emitted per round.",
            "",
            "| temperature | prompts | first token | acceptance length | rounds |",
        ]
        lines.append("|---|---|---|---|---|")
        for temperature, one in found.items():
            groups = {"all": one["all"], "chat, code, summarization": one["judged"]}
            for name, figures in {**groups, **one["categories"]}.items():
                if figures["length"] is not None:
                    lines.append(
                        f"| {temperature} | {name} | {figures['first']:.2f} | "
                        f"{figures['length']:.2f} | {figures['rounds']} |"
                    )
        lines.append("")
    return lines or ["Not measured yet."]
