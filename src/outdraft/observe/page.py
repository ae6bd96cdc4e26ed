"""A server's /metrics page in Prometheus' text form: parsed, and the difference of two pages.

Names are matched exactly: `…_accepted_tokens` is the beginning of `…_accepted_tokens_per_pos`, and
a parser that looks for substrings counts twice.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from outdraft.observe.names import METHOD, NOT_ADDED

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Page = dict[str, float]  # 'name' or 'name{position="0"}' → value, summed over all other labels

_KEPT_LABELS = frozenset(
    ("position", "k", "finished_reason", "temperature", "tokens", "le", "side", "running",
     "num_gpu_blocks")
)  # fmt: skip
_MODEL = 'served_model{model_name="'  # of a page's models, which no name of an engine is
_MAX_MODELS, _MAX_MODEL_CHARS = 8, 200
_MAX_VALUE = 1e18  # sums of such values stay finite
_MAX_SERIES_CHARS = 1_000  # a longer beginning of a line is nobody's, and would be remembered


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
        _count(page, name, _key(name, labels), value)
    return page


def parse_named(text: str, names: Collection[str]) -> Page:
    """Only these names, and the models that are served (`read_models`). A server's series are the
    same at every look, so what a line's beginning means is remembered; other lines cost little."""
    page: Page = {}
    for line in text.split("\n"):
        end = line.find("{")
        if end < 0:
            end = line.find(" ")
        if line[:end] not in names:
            continue
        series, closing, value = line.rpartition("}")
        if not closing:
            series, _, value = line.partition(" ")
        if len(series) > _MAX_SERIES_CHARS:
            continue
        name, key, model = _described(series)
        try:
            number = float(value)  # the usual case: no time behind it
        except ValueError:
            for _, _, timed in parse_samples(line):
                number = timed
                break
            else:
                continue
        if abs(number) < _MAX_VALUE:  # NaN is not
            _count(page, name, key, number)
            if model is not None:
                page[model] = 1.0
    return page


def page_of_samples(samples: Iterable[tuple[str, float]]) -> Page:
    """Of series as `name{label="value",…` and their values, which somebody else has parsed."""
    page: Page = {}
    for series, value in samples:
        if abs(value) < _MAX_VALUE and len(series) <= _MAX_SERIES_CHARS:
            name, key, model = _described(series)
            _count(page, name, key, value)
            if model is not None:
                page[model] = 1.0
    return page


def read_models(page: Mapping[str, float]) -> tuple[str, ...]:
    found = sorted(key[len(_MODEL) : -2] for key in page if key.startswith(_MODEL))
    return tuple(found[:_MAX_MODELS])


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


def _count(page: Page, name: str, key: str, value: float) -> None:
    known = page.get(key)
    if known is not None:
        value = max(known, value) if name in NOT_ADDED else known + value
    page[key] = value


def _key(name: str, labels: Mapping[str, str]) -> str:
    of_this = _KEPT_LABELS if name != METHOD else ("method",)  # others may have it on counters
    kept = ",".join([f'{k}="{v}"' for k, v in labels.items() if k in of_this])
    return f"{name}{{{kept}}}" if kept else name


@lru_cache(maxsize=1 << 15)
def _described(series: str) -> tuple[str, str, str | None]:
    """`name` or `name{labels` → its name, its key on a page, the key of its model."""
    name, _, text = series.partition("{")
    labels = dict(_LABEL.findall(text))
    model = labels.get("model_name", "")[:_MAX_MODEL_CHARS]
    return name, _key(name, labels), f'{_MODEL}{model}"}}' if model else None
