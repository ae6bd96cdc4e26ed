"""What every page of ours has around its card and its sections."""

from collections.abc import Mapping
from importlib.resources import files as resources
from string import Template

from outdraft.report.markup import Child, join
from outdraft.version import __version__

# Which of them a page has is its own affair.
_MAY_BE_MISSING: Mapping[str, Child] = {"policy": None, "reload": None, "script": None}


def framed(values: Mapping[str, Child]) -> str:
    """A whole page, from what goes into each place of `frame.html`."""
    html = resources("outdraft.report").joinpath("frame.html").read_text(encoding="utf-8")
    doctype, *lines = html.splitlines()
    template = Template("".join(line.strip() for line in lines))
    filled = {**_MAY_BE_MISSING, "version": __version__, **values}
    return f"{doctype}\n{template.substitute({key: join(filled[key]) for key in filled})}\n"
