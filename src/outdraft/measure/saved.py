"""Files of measurements: saved runs and how they are compared, comparisons, plans."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import Verdict, decide
from outdraft.errors import OptionError
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.evidence import RATIOS, make_evidence
from outdraft.measure.machine import describe_client
from outdraft.plan.findings import Pairing, Shares
from outdraft.records import SCHEMA, Record, Trial, trial_from_json
from outdraft.stats.sequential import noise_floor
from outdraft.whole_file import read_json, write_json

# What should be the same in two runs, by the keys of their files
_ARRIVALS = ("concurrency", "rate", "replay")  # one of them is there
_LATER = ("max_tokens", "stop_at_eos", "prompts", "cpu")  # earlier versions did not write them
_OTHERS = ("burstiness", "ramp_to", "speed", "outdraft", "machine", "cores", "memory_gib", "gpus",
           "server_engine", "server_version")  # fmt: skip

Key = tuple[str, float, int]  # prompt, temperature, how often the two came before


def read_trial(path: Path) -> Trial:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and "loads" in data:
            raise OptionError(
                f"{path} holds {len(data['loads'])} loads; give bench --out of a single load"
            )
        return trial_from_json(data)
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OptionError(f"{path} is no saved run ({error}); make one with bench --out") from None


def compare_saved(
    baseline: Trial, candidate: Trial, block_size: int, settings: ComparisonSettings
) -> tuple[Evidence, Verdict]:
    """Compares two runs that were saved one after the other."""
    one, other = in_blocks(baseline.records, candidate.records, block_size)
    other = [_comparable(*both) for both in zip(one, other, strict=True)]
    evidence = make_evidence(
        one,
        other,
        level=0.95,
        problems=(
            *unknowns(baseline, candidate),
            *baseline.problems,
            *candidate.problems,
        ),
        is_valid=baseline.is_valid and candidate.is_valid,
        method=candidate.environment.get("server_method"),
        **settings.for_evidence,
    )
    return evidence, decide(evidence, margin=settings.margin)


def unknowns(baseline: Trial, candidate: Trial) -> list[str]:
    """What a comparison of two saved runs cannot know, and in what else they differ."""
    notes = [
        "the two runs were made one after the other, not in turns: what changed on the machine "
        "between them is in the ratio, and in no interval"
    ]
    one, other = ({**each.environment, **each.load} for each in (baseline, candidate))
    in_both = [key for key in (*_LATER, *_OTHERS) if key in one and key in other]
    differing = [key for key in (*_ARRIVALS, *in_both) if one.get(key) != other.get(key)]
    if differing:
        words = ", ".join(f"{key} ({one.get(key)}, {other.get(key)})" for key in differing)
        notes.append(f"the two runs differ in {words}: that is in the ratio too")
    if unsaid := [key for key in _LATER if key not in in_both]:
        notes.append(f"whether they had the same {', '.join(unsaid)} is not in the files")
    keyed = [_keyed(each.records) for each in (baseline, candidate)]
    alone = [len(own.keys() - others.keys()) for own, others in (keyed, keyed[::-1])]
    if any(alone):
        notes.append(
            f"{alone[0]} requests of the baseline and {alone[1]} of the candidate have no twin and "
            "are left out"
        )
    return notes


def in_blocks(
    baseline: Sequence[Record], candidate: Sequence[Record], size: int
) -> tuple[list[Record], list[Record]]:
    """The requests that both runs have, in blocks of `size`, numbered alike in both.

    Requests of one block were sent close together, so these blocks can stand in for interleaved
    ones.
    """
    one, other = _keyed(baseline), _keyed(candidate)
    shared = [key for key in one if key in other]
    if not shared:
        raise OptionError("the two runs have no request in common; use the same prompts and seed")

    def numbered(records: Mapping[Key, Record]) -> list[Record]:
        places = (divmod(number, size) for number in range(len(shared)))
        return [
            replace(records[key], block=block, index=index)
            for key, (block, index) in zip(shared, places, strict=True)
        ]

    return numbered(one), numbered(other)


def _comparable(one: Record, other: Record) -> Record:
    """Without its text where the two were cut at different limits."""
    were_cut = one.finish_reason == other.finish_reason == "length"
    is_other = were_cut and one.completion_tokens != other.completion_tokens
    return replace(other, text=None) if is_other else other


def _keyed(records: Sequence[Record]) -> dict[Key, Record]:
    counts: Counter[tuple[str, float]] = Counter()
    keyed = {}
    for record in records:
        if not record.is_warmup:
            request = (record.prompt_id, record.temperature)
            keyed[(*request, counts[request])] = record
            counts[request] += 1
    return keyed


def write_comparison(path: Path, comparison: Comparison, *, is_same_server: bool) -> None:
    evidence, verdict = comparison.evidence, comparison.verdict
    assert evidence is not None
    assert verdict is not None
    values = {
        "schema": SCHEMA,
        "settings": asdict(comparison.settings),
        "environment": describe_client(),
        "verdict": asdict(verdict),
        "ratios": ratios_to_json(evidence),
        "texts": texts_to_json(evidence),
        "load": load_to_json(comparison),
        "noise_floor": noise_floor_of(evidence) if is_same_server else None,
        "records": [asdict(record) for record in comparison.records],
    }
    write_json(path, values)


def ratios_to_json(evidence: Evidence) -> dict[str, Any]:
    values = asdict(evidence)
    return {
        name: values[name] for name in (*RATIOS, "by_category", "by_temperature", "tpot_by_part")
    }


def texts_to_json(evidence: Evidence) -> dict[str, Any]:
    """How far greedy texts agree, with the baseline's and the baseline's with its own."""
    values = asdict(evidence)
    return {"agreement": values["texts"], "floor": values["text_floor"]}


def load_to_json(comparison: Comparison) -> dict[str, Any]:
    """What the servers had to do, and how much of it ran as they count it."""
    running = comparison.mean_running
    return {
        "concurrency": comparison.settings.concurrency,
        "block_size": comparison.settings.block_size,
        "num_blocks": comparison.num_blocks,
        "running_requests": {arm: each.mean for arm, each in running.items()},
        "running_requests_interval": {arm: [each.low, each.high] for arm, each in running.items()},
        **({"gpus": figures} if (figures := comparison.gpu_figures) else {}),
    }


def noise_floor_of(evidence: Evidence) -> float | None:
    return None if evidence.e2e is None else noise_floor(evidence.e2e)


def read_noise_floor(text: str) -> float:
    """A number, or the noise floor in a file that an A/A run wrote."""
    value: Any = text
    if Path(text).is_file():
        value = read_json(Path(text)).get("noise_floor")
        if value is None:
            raise OptionError(
                f"--noise-floor {text}: no A/A run; make one: outdraft compare URL URL --out FILE"
            )
    with suppress(TypeError, ValueError):
        if 0 <= (floor := float(value)) < 1:
            return floor
    raise OptionError(
        f"--noise-floor {text!r} is neither a number between 0 and 1 nor a file of an A/A run"
    )


def read_plan(path: str) -> tuple[Shares | None, Pairing | None]:
    """From a file that `outdraft plan --json` printed."""
    if not Path(path).is_file():
        raise OptionError(f"no file {path}; make one: outdraft plan … --json > {path}")
    plan = read_json(Path(path))
    shares, pair = plan.get("shares"), plan.get("pairing")
    try:
        memory = shares and Shares(**shares)
        names = ("size_ratio", "same_family", "same_tokenizer")
        return memory, pair and Pairing(**{name: pair[name] for name in names})
    except (KeyError, TypeError) as error:
        raise OptionError(
            f"{path} is no plan ({error}); outdraft plan … --json makes one"
        ) from None
