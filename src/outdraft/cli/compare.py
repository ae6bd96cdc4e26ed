"""`outdraft compare BASELINE CANDIDATE`: is the candidate faster, with proof."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.load_options import LOAD, check_counts, endpoint_of, prompts_of, recording
from outdraft.cli.options import Option, add_options
from outdraft.errors import OptionError

if TYPE_CHECKING:
    from outdraft.decide.evidence import Evidence, Memory, Pairing
    from outdraft.decide.verdict import Verdict
    from outdraft.measure.compare import Outcome, Settings

_EXAMPLES = """\
examples:
  outdraft serve --port 8001 & outdraft serve --port 8002 --method ngram &
  outdraft compare http://127.0.0.1:8001 http://127.0.0.1:8002
  outdraft compare http://a:8000 http://b:8000 --requests 400 --concurrency 16 --json
  outdraft compare http://a:8000 http://a:8000        # A/A: the noise floor of this setup
  outdraft compare off.json on.json                   # two runs saved by bench --out
"""

_FEWEST_REQUESTS = 10

_COMPARE = (
    Option("--requests", "of each server at most", default=240, type=int, metavar="N"),
    Option("--block", "requests of one server in a row", default=12, type=int, metavar="N"),
    Option("--margin", "a difference up to this is none", default=0.01, type=float, metavar="X"),
    Option(
        "--noise-floor",
        "differences below it are noise: a number, or what an A/A run wrote with --out",
        default="0",
        metavar="X|FILE",
    ),
    Option(
        "--plan",
        "what `outdraft plan --json` said of the candidate's pair, for the checks",
        metavar="FILE",
    ),
    Option("--ttft-bound", "the service promises a time to first token", is_switch=True),
    Option("--out", "write every record, the ratios and the verdict as JSON", metavar="FILE"),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare two servers and give a verdict",
        usage="outdraft compare BASELINE CANDIDATE [options]",
        description="Send the same prompts to two servers in alternating blocks and say, with "
        "intervals, whether the candidate should ship. Stops early when the answer is clear.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("baseline", metavar="BASELINE", help="a URL, or a saved run")
    parser.add_argument("candidate", metavar="CANDIDATE", help="a URL, or a saved run")
    add_options(parser, "load", LOAD)
    add_options(parser, "comparison", _COMPARE)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from outdraft.report.tables import compare_table

    check_counts(args, "requests", "concurrency", "max_tokens")
    if args.block < 2:
        raise OptionError(f"--block must be at least 2, got {args.block}")
    if args.requests < _FEWEST_REQUESTS:
        raise OptionError(
            f"--requests must be at least {_FEWEST_REQUESTS}, got {args.requests}: an interval "
            "needs five blocks of two"
        )
    if not 0 <= args.margin < 1:
        raise OptionError(f"--margin lies between 0 and 1, got {args.margin:g}")
    args.noise_floor = _noise_floor(args.noise_floor)
    are_urls = [
        text.startswith(("http://", "https://")) for text in (args.baseline, args.candidate)
    ]
    if are_urls[0] != are_urls[1]:
        raise OptionError("give two URLs or two saved runs, not one of each")
    evidence, verdict = _live(args) if are_urls[0] else _saved(args)
    is_same, floor = args.baseline == args.candidate, _floor_of(evidence)
    if args.json:
        found = {"verdict": verdict.to_json(), "ratios": ratios_of(evidence)}
        print(json.dumps(found | ({"noise_floor": floor} if is_same else {})))
    else:
        print(compare_table(evidence, verdict))
        if is_same and floor is not None:
            print(f"noise floor: {floor:.3f} (A/A); a later compare takes it with --noise-floor")
    return 0 if evidence.is_valid else 1


def _floor_of(evidence: Evidence) -> float | None:
    from outdraft.stats import noise_floor

    return None if evidence.e2e is None else noise_floor(evidence.e2e)


def _noise_floor(text: str) -> float:
    """A number, or the one in a file that an A/A run wrote."""
    told: Any = text
    if Path(text).is_file():
        from outdraft.modelspec.tensors import read_json

        told = read_json(Path(text)).get("noise_floor")
        if told is None:
            raise OptionError(
                f"--noise-floor {text}: no A/A run; make one: outdraft compare URL URL --out FILE"
            )
    try:
        floor = float(told)
    except (TypeError, ValueError):
        floor = -1.0
    if not 0 <= floor < 1:
        raise OptionError(
            f"--noise-floor {text!r} is neither a number between 0 and 1 nor a file of an A/A run"
        )
    return floor


def _planned(path: str | None) -> tuple[Memory | None, Pairing | None]:
    """From a file that `outdraft plan --json` printed."""
    from outdraft.decide.evidence import Memory, Pairing
    from outdraft.modelspec.tensors import read_json

    if path is None:
        return None, None
    if not Path(path).is_file():
        raise OptionError(f"no file {path}; make one: outdraft plan … --json > {path}")
    plan = read_json(Path(path))
    shares, pair = plan.get("shares"), plan.get("pairing")
    try:
        memory = shares and Memory(**shares)
        names = ("size_ratio", "same_family", "same_tokenizer")
        return memory, pair and Pairing(**{name: pair[name] for name in names})
    except (KeyError, TypeError) as error:
        raise OptionError(
            f"{path} is no plan ({error}); outdraft plan … --json makes one"
        ) from None


def ratios_of(evidence: Evidence) -> dict[str, Any]:
    names = ("e2e", "tpot", "ttft", "throughput", "p99")
    found = {name: getattr(evidence, name) for name in names}
    return {
        **{name: None if ratio is None else asdict(ratio) for name, ratio in found.items()},
        "by_category": {name: asdict(ratio) for name, ratio in evidence.by_category.items()},
        "by_temperature": {name: asdict(ratio) for name, ratio in evidence.by_temperature.items()},
    }


def _saved(args: argparse.Namespace) -> tuple[Evidence, Verdict]:
    from outdraft.decide.verdict import decide
    from outdraft.measure.evidence import make_evidence
    from outdraft.measure.files import read_trial
    from outdraft.measure.saved import in_blocks

    baseline, candidate = read_trial(Path(args.baseline)), read_trial(Path(args.candidate))
    one, other = in_blocks(baseline.records, candidate.records, args.block)
    memory, pairing = _planned(args.plan)
    evidence = make_evidence(
        one,
        other,
        memory=memory,
        pairing=pairing,
        level=0.95,
        margin=args.margin,
        noise_floor=args.noise_floor,
        problems=(
            "two runs at two times: what changed on the machine between them is in the ratio",
            *baseline.problems,
            *candidate.problems,
        ),
        is_valid=baseline.is_valid and candidate.is_valid,
        ttft_bound=args.ttft_bound,
        seed=args.seed,
    )
    return evidence, decide(evidence, margin=args.margin)


def _live(args: argparse.Namespace) -> tuple[Evidence, Verdict]:
    from outdraft.measure.compare import Settings, compare
    from outdraft.stats import MIN_BLOCKS
    from outdraft.workload.temperatures import parse_mix

    memory, pairing = _planned(args.plan)
    settings = Settings(
        memory=memory,
        pairing=pairing,
        max_requests=args.requests,
        # Five blocks at least make an interval; fewer requests make smaller blocks, never more.
        block_size=min(args.block, args.requests // MIN_BLOCKS),
        concurrency=args.concurrency,
        mix=parse_mix(args.temperature),
        max_tokens=args.max_tokens,
        seed=args.seed,
        margin=args.margin,
        noise_floor=args.noise_floor,
        ttft_bound=args.ttft_bound,
    )
    prompts = prompts_of(args)
    ends = [endpoint_of(url, args) for url in (args.baseline, args.candidate)]
    total = 2 * settings.block_size * (settings.max_blocks + 1)
    with recording(total, "compare", args.out) as sink:
        outcome = compare(ends[0], ends[1], prompts, settings, sink=sink)
        if outcome.evidence is None or outcome.verdict is None:
            raise OptionError("stopped before the first look: nothing can be said")
        if args.out is not None:
            _write(Path(args.out), outcome, settings, args.baseline == args.candidate)
    return outcome.evidence, outcome.verdict


def _write(path: Path, outcome: Outcome, settings: Settings, is_same: bool) -> None:
    from outdraft.measure.environment import fingerprint
    from outdraft.records import SCHEMA
    from outdraft.whole_file import write_json

    assert outcome.verdict is not None
    assert outcome.evidence is not None
    write_json(
        path,
        {
            "schema": SCHEMA,
            "settings": asdict(settings),
            "environment": fingerprint(),
            "verdict": outcome.verdict.to_json(),
            "ratios": ratios_of(outcome.evidence),
            "noise_floor": _floor_of(outcome.evidence) if is_same else None,
            "records": [asdict(record) for record in outcome.records],
        },
    )
