"""The model card: README.md of a draft's folder, made from distill.json and card.md."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

from outdraft.distill.options import METHODS

_TEMPLATE = resources.files(__package__).joinpath("card.md").read_text("utf-8")
_TABLE = """\
{title} at draft length {k}:
first token is the share of rounds whose first draft token was accepted, acceptance length the \
tokens emitted per round.

| temperature | prompts | first token | acceptance length | rounds |
|---|---|---|---|---|
"""
_ROW = "| {} | {} | {first:.2f} | {length:.2f} | {rounds} |\n"


def model_card(report: Mapping[str, Any]) -> str:
    """`report`: the contents of distill.json. Its `remarks`, added by hand, are further lines on
    the training."""
    licence, own_prompts = report["target"].get("licence"), report["data"].get("prompts")
    shape = report["shape"].items()
    card = _TEMPLATE.format(
        **report,
        method=METHODS[report["kind"]],
        shape_lines="\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in shape),
        own_prompts=f" and two thirds of {own_prompts}" if own_prompts else "",
        training_lines=_training(report),
        acceptance_lines=acceptance_tables(report),
        licence_words=f": {licence}" if licence else
        ", whose files do not name one: look it up before you pass this on",
    )  # fmt: skip
    return f"---\nlicense: {licence.lower()}\n---\n\n{card}" if licence else card


def _training(report: Mapping[str, Any]) -> str:
    training = report.get("training")
    if training is None:
        return "Not trained yet."
    loss = "" if training["loss"] is None else f"; the last loss was {training['loss']:.3f}"
    unrolled = "; unrolled over the head's own predictions" if report["kind"] == "head" else ""
    text = (
        f"{training['step']:,} steps over {training['tokens']:,} tokens in "
        f"{training['seconds']:.0f} s on {report['device']}{loss}. Distillation from the target's "
        f"likeliest tokens{unrolled}."
    )
    return "\n".join([text, *report.get("remarks", [])])


def acceptance_tables(report: Mapping[str, Any]) -> str:
    tables = []
    for key, title in (
        ("measured", "Measured with outdraft's engine"),
        ("estimated", "Estimated along the target's own texts"),
    ):
        table = _TABLE.format(title=title, k=report["k"])
        for temperature, one in report.get(key, {}).items():
            groups = {"all": one["all"], "chat, code, summarization": one["judged"]}
            for name, figures in {**groups, **one["categories"]}.items():
                if figures["length"] is not None:
                    table += _ROW.format(temperature, name, **figures)
        if report.get(key):
            tables.append(table)
    return "\n".join(tables) or "Not measured yet."
