"""A configuration as text, in one of the forms."""

from outdraft.emit.compose import compose
from outdraft.emit.config import EngineConfig
from outdraft.emit.json_form import json_form
from outdraft.emit.k8s import k8s
from outdraft.emit.options import FORMS
from outdraft.emit.shell import shell
from outdraft.errors import unknown_choice

_WRITERS = {"cli": shell, "json": json_form, "compose": compose, "k8s": k8s}


def write_form(config: EngineConfig, form: str) -> str:
    if form not in _WRITERS:
        raise unknown_choice("form", form, FORMS)
    return _WRITERS[form](config)
