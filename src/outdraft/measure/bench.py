"""One server under one load after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.load import Sink
from outdraft.measure.gauges import wait_until_idle
from outdraft.measure.saturation import LoadPoint, Saturation, find_saturation
from outdraft.measure.summary import Summary, summarize
from outdraft.measure.trial import run_trial
from outdraft.records import SCHEMA, Trial
from outdraft.workload.lengths import parse_lengths
from outdraft.workload.settings import LoadPlan


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """What was measured under one load."""

    name: str
    trial: Trial
    summary: Summary
    is_stopped: bool = False  # by the user

    @property
    def size(self) -> float | None:
        """Requests at a time, or a second; None for a trace."""
        size: float | None = self.trial.load.get("concurrency") or self.trial.load.get("rate")
        return size

    @property
    def point(self) -> LoadPoint | None:
        """For the search of the saturation; None where nothing useful was measured."""
        if self.size is None or not self.trial.is_valid or not self.summary.e2e:
            return None
        is_rate = "rate" in self.trial.load
        return LoadPoint(
            self.size,
            self.summary.tokens_per_s,
            self.summary.e2e[0].value,
            self.summary.requests_per_s,
            self.summary.offered_per_s if is_rate else None,
        )


@dataclass(frozen=True, slots=True)
class Bench:
    loads: tuple[BenchLoad, ...]

    @property
    def is_valid(self) -> bool:
        return all(each.trial.is_valid for each in self.loads)

    @property
    def saturation(self) -> Saturation | None:
        return find_saturation([each.point for each in self.loads if each.point is not None])

    def to_json(self) -> dict[str, Any]:
        """For a file: the trial of a single load, which `compare` reads; a list of several."""
        if len(self.loads) == 1:
            return self.loads[0].trial.to_json()
        saturation = self.saturation
        return {
            "schema": SCHEMA,
            "loads": [each.trial.to_json() for each in self.loads],
            "saturation": None if saturation is None else asdict(saturation),
        }


def run_bench(
    endpoint: Endpoint,
    plans: Sequence[LoadPlan],
    *,
    load: Mapping[str, Any],
    slo: Mapping[str, float] | None = None,
    processes: int = 1,
    keep_memory: bool = False,
    gpu_metrics: str | None = None,
    sink: Sink | None = None,
) -> Bench:
    """`load`: what is to be known of every load beside its plan. Control-C ends it, with the loads
    so far; so does a server that answers nothing any more."""
    done: list[BenchLoad] = []
    for plan in plans:
        if done:
            wait_until_idle(endpoint.server)
        trial, quality = run_trial(
            endpoint,
            plan.requests,
            arm="server" if len(plans) == 1 else plan.name,
            load={**plan.description, "requests": plan.num_requests, **load, "slo": slo},
            concurrency=plan.concurrency,
            duration_s=plan.duration_s,
            warmup=plan.warmup,
            spare=plan.spare,
            processes=processes,
            keep_memory=keep_memory,
            gpu_metrics=gpu_metrics,
            sink=sink,
        )
        notes = (*plan.notes, *_ran_out(plan, trial), *_other_lengths(trial))
        trial = replace(trial, problems=(*notes, *trial.problems))
        summary = summarize(trial.records, slo, trial.server_metrics)
        done.append(BenchLoad(plan.name, trial, summary, quality.is_stopped))
        if quality.is_stopped or summary.num_errors == summary.num_requests:
            break
    return Bench(tuple(done))


def _ran_out(plan: LoadPlan, trial: Trial) -> list[str]:
    num_sent = sum(not each.is_warmup for each in trial.records)
    if plan.duration_s is None or num_sent < plan.num_requests:
        return []
    return [f"all {num_sent} requests were sent before {plan.duration_s:g} s were over"]


def _other_lengths(trial: Trial) -> list[str]:
    """Where prompts or answers are not as long as they were to be."""
    notes = []
    done = [each for each in trial.records if each.ok and not each.is_warmup]
    for what, key, name in (
        ("prompts", "input_len", "prompt_tokens"),
        ("answers", "output_len", "completion_tokens"),
    ):
        first = [each for each in done if each.turn == 0 or key != "input_len"]
        had = [getattr(each, name) or 0 for each in first]
        if key not in trial.load or not had:
            continue
        asked = parse_lengths(trial.load[key])
        wrong = sum(not asked.low <= each <= asked.high for each in had)
        if wrong:
            notes.append(
                f"{wrong} of {len(had)} {what} are not of {asked} tokens, as the server counts: "
                f"they have {min(had)} to {max(had)}"
            )
    return notes
