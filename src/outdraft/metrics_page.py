"""A server's /metrics page: parsed, the difference of two of them, what it says of drafts.

Names are matched exactly: `…_accepted_tokens` is the beginning of `…_accepted_tokens_per_pos`, and
parsers that look for substrings count twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from outdraft.records import AcceptanceCounts

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\S+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Page = dict[str, float]  # 'name' or 'name{position="0"}' → value; other labels are summed over

_KV_USAGE = ("vllm:kv_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio")
_KEPT_LABELS = ("position", "k", "finished_reason", "temperature", "tokens", "le")


def parse(text: str) -> Page:
    """Lines that are no samples are passed over: a page is never a reason to fail."""
    page: Page = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line.strip())
        if found is None or line.startswith("#"):
            continue
        name, labels, value = found.groups()
        kept = [
            f'{key}="{content}"'
            for key, content in _LABEL.findall(labels or "")
            if key in _KEPT_LABELS
        ]
        try:
            number = float(value)
        except ValueError:
            continue
        if not math.isfinite(number):  # nothing was measured yet
            continue
        key = f"{name}{{{','.join(kept)}}}" if kept else name
        page[key] = page.get(key, 0.0) + number
    return page


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> Page:
    """Counters over the time between; what restarted (went down) counts from nothing. Gauges as
    they are at the end: SGLang's draft length is one. Buckets are left out."""
    changed: Page = {}
    for key, value in after.items():
        name = key.partition("{")[0]
        if name.endswith(("_total", "_sum", "_count")):
            earlier = before.get(key, 0.0)
            changed[key] = value - earlier if value >= earlier else value
        elif not name.endswith("_bucket"):
            changed[key] = value
    return changed


def drafted(
    page: Mapping[str, float], engines: Sequence[str] = ("vllm", "llamacpp")
) -> AcceptanceCounts | None:
    """What the page counts of drafts, or None. Our own server uses vLLM's names."""
    for engine in engines:
        name = f"{engine}:spec_decode_num"
        proposed = page.get(f"{name}_draft_tokens_total")
        if proposed is not None:
            return AcceptanceCounts(
                num_drafts=int(page.get(f"{name}_drafts_total", 0)),
                num_draft_tokens=int(proposed),
                num_accepted_tokens=int(page.get(f"{name}_accepted_tokens_total", 0)),
                accepted_per_position=per_position(page, f"{name}_accepted_tokens_per_pos_total"),
                drafted_per_position=per_position(page, "outdraft:draft_tokens_per_pos_total"),
            )
    return None


def step_seconds(page: Mapping[str, float]) -> dict[int, float]:
    """What a step of so many tokens takes, where a server (ours) measured it at its start."""
    name = 'outdraft:step_seconds{tokens="'
    return {int(key[len(name) : -2]): value for key, value in page.items() if key.startswith(name)}


def kv_usage(page: Mapping[str, float]) -> float | None:
    """Share of the KV cache in use, 0 to 1; None where the server does not say."""
    return next((page[name] for name in _KV_USAGE if name in page), None)


def per_position(page: Mapping[str, float], name: str) -> tuple[int, ...]:
    """The samples of `name` by their position label, from 0 on."""
    found: dict[int, int] = {}
    for key, value in page.items():
        base, _, rest = key.partition("{")
        place = re.search(r'position="(\d+)"', rest)
        if base == name and place is not None:
            found[int(place[1])] = int(value)
    return tuple(found[place] for place in range(len(found)) if place in found)
