"""A page that is one file: no script, nothing fetched. Text, style and pictures are all in it."""

from collections.abc import Sequence
from typing import NamedTuple

from outdraft.report.frame import framed
from outdraft.report.markup import Markup, tag
from outdraft.report.theme import stylesheet

# The browser fetches nothing and runs nothing, whatever texts the results contain.
_POLICY = tag(
    "meta",
    http_equiv="Content-Security-Policy",
    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
)


class Part(NamedTuple):
    """A section of a page."""

    key: str  # its address in the page
    link: str  # its name in the navigation
    title: str
    body: Markup


def one_file(
    *,
    title: str,
    kind: str,
    about: Sequence[str],
    started_at: str,
    first: str,
    card: Markup,
    parts: Sequence[Part],
) -> str:
    """`kind`: what the page is, beside our name. `first`: the address of the card on top."""
    when = tag("time", started_at[:16].replace("T", " ")) if started_at else None
    told = f", run started {started_at}" if started_at else ""
    return framed(
        {
            "policy": _POLICY,
            "title": title,
            "style": stylesheet(),
            "first": first,
            "kind": kind,
            "what": tag("p", [tag("span", each) for each in about], when, class_="what"),
            "card": card,
            "links": [tag("a", part.link, href=f"#{part.key}") for part in parts],
            "sections": [_section(part) for part in parts],
            "footer": f"{told}. This page is one file: it fetches and runs nothing.",
        }
    )


def _section(part: Part) -> Markup:
    heading = tag("h2", part.title, id=f"{part.key}-title")
    return tag("section", heading, part.body, id=part.key, aria_labelledby=f"{part.key}-title")
