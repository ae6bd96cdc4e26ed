"""A server's /metrics page in Prometheus' text form: parsed, and the difference of two pages.

Names are matched exactly: `…_accepted_tokens` is the beginning of `…_accepted_tokens_per_pos`, and
a parser that looks for substrings counts twice.
"""

import math
import re
from collections.abc import Iterator, Mapping

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Page = dict[str, float]  # 'name' or 'name{position="0"}' → value, summed over all other labels

_KEPT_LABELS = ("position", "k", "finished_reason", "temperature", "tokens", "le")


def parse_samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every finite sample. Other lines are skipped: a page is never a
    reason to fail."""
    for line in text.splitlines():
        matched = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if matched is None:
            continue
        name, labels, value = matched.groups()
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):  # NaN: nothing was measured yet
            yield name, dict(_LABEL.findall(labels or "")), number


def parse_page(text: str) -> Page:
    """A page by name and by those labels that our readers use."""
    page: Page = {}
    for name, labels, value in parse_samples(text):
        kept = ",".join(f'{k}="{v}"' for k, v in labels.items() if k in _KEPT_LABELS)
        key = f"{name}{{{kept}}}" if kept else name
        page[key] = page.get(key, 0.0) + value
    return page


def page_difference(after: Mapping[str, float], before: Mapping[str, float]) -> Page:
    """How counters grew between two pages. One that went down was restarted and counts from 0.

    Gauges keep their later value (SGLang's draft length is a gauge); buckets are left out.
    """
    changed: Page = {}
    for key, value in after.items():
        name = key.partition("{")[0]
        if name.endswith(("_total", "_sum", "_count")):
            earlier = before.get(key, 0.0)
            changed[key] = value - earlier if value >= earlier else value
        elif not name.endswith("_bucket"):
            changed[key] = value
    return changed
