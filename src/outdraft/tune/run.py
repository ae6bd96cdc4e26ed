"""A tuning run: from settings to arms and requests, then the search on real engines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from outdraft.backends.backend import Backend, Capabilities, Traffic
from outdraft.backends.checks import check_supported, preflight
from outdraft.backends.lookup import backend_named
from outdraft.catalog import resolve
from outdraft.errors import OptionError
from outdraft.measure.cores import CoreWatch, no_watch
from outdraft.measure.memory import REMEMBERED
from outdraft.shared_options import TARGET
from outdraft.speculation import METHODS, OFF, WITH_DRAFT, Speculation
from outdraft.tune.arm import FINAL, by_proposer
from outdraft.tune.candidates import (
    Pruner,
    Space,
    drafts_by_method,
    enumerate_arms,
    head_devices,
    mtp_layers,
    pruned_ks,
    spread_ks,
)
from outdraft.tune.engines import OnAnswer, engine_starter
from outdraft.tune.identity import identify
from outdraft.tune.journal import AnswerTime, Journal
from outdraft.tune.keeping import Keeping
from outdraft.tune.lab import Lab
from outdraft.tune.options import ASLEEP, VISITS
from outdraft.tune.outcome import RunContext, make_results
from outdraft.tune.pace import Pace, guess_pace
from outdraft.tune.placing import place_engines
from outdraft.tune.progress import Display, Progress
from outdraft.tune.requests import MAX_BLOCKS, deal_requests
from outdraft.tune.results import Pruned, Results
from outdraft.tune.rules import Rules, SearchSettings
from outdraft.tune.search import Search
from outdraft.tune.servers import find_servers, known_drafts, server_finder
from outdraft.tune.settings import RunSettings
from outdraft.tune.starts import OnStart, StartTimes
from outdraft.tune.time_told import TimeTold, resumed_words
from outdraft.workload.plan import Blocks
from outdraft.workload.prompt import Prompt
from outdraft.workload.training import unseen_prompts

_LARGE_BLOCK = 8  # requests; one such block profiles a proposer, of smaller ones it takes two
_FEW_KS = 4  # draft lengths that are tried where each needs a process of its own


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is searched, on what, with which requests."""

    settings: RunSettings
    backend: Backend
    search: SearchSettings
    blocks: Mapping[str, Blocks]  # name of a load → its requests
    context: RunContext
    header: Mapping[str, Any]  # identifies the run in its journal
    prompts: Sequence[Prompt]
    keeping: Keeping
    num_parameters: int | None = None  # of the target, that a token passes; None: not known here

    def guess_pace(
        self, blocks: Mapping[str, Blocks], answer_times: Mapping[str, AnswerTime]
    ) -> Pace:
        loads = [load.in_part(part) for load in self.search.loads for part in ("", FINAL)]
        is_started = not self.settings.servers
        return guess_pace(
            {load.name: load for load in loads},
            blocks,
            self.num_parameters,
            self.backend.capabilities().usual_start_s if is_started else 0.0,
            is_gpu=self.backend.installation.device != "cpu",
            answer_times=answer_times,
        )

    def lab(
        self,
        logs: Path,
        on_start: OnStart = lambda *_: None,
        earlier_s: Iterable[float] = (),  # what earlier starts of the run took
        on_answer: OnAnswer = lambda done, total: None,
    ) -> Lab:
        settings, keeping = self.settings, self.keeping
        serving = replace(
            settings.serving, can_sleep=keeping.how == ASLEEP, memory_share=keeping.share
        )
        starts, cards = StartTimes(earlier_s), self.search.cards
        on_wait, asked = starts.shown(on_start), settings.stop_at_eos
        if settings.servers:
            finder = partial(server_finder, stop_at_eos=asked, on_answer=on_answer)
            each = [finder(settings.servers, settings.api_key)]
        else:
            limit_s = settings.start_limit_s
            starter = partial(
                engine_starter, limit_s=limit_s, stop_at_eos=asked, on_answer=on_answer
            )
            on_cards = [replace(serving, gpus=gpus) for gpus in cards.gpus]
            each = [starter(self.backend, one, logs, on_wait) for one in on_cards]
        first, *others = map(starts.timed, each)
        return Lab(
            self.backend,
            self.blocks,
            first,
            longest=max(arm.k for arm in self.search.arms),
            keeps_memory=not settings.serving.forgets,
            keeping=keeping,
            cards=cards,
            other_starts=others,
            watch=no_watch if settings.servers else CoreWatch,
        )

    def deal_again(self, lab: Lab, journal: Journal, display: Display) -> None:
        """Blocks that are as long as the engine's speed wants, where engines take long to change
        and where requests come by the clock."""
        supported, times = self.backend.capabilities(), journal.answer_times
        timed = [each for each in self.search.loads if each.rate or not supported.shares_process]
        if not timed:
            return
        for load in timed if self.settings.block_size is None else ():
            if load.name not in times:
                journal.add(lab.measure_answer(load))
        salt = "" if supported.shares_process else journal.started_at
        lab.blocks = deal_requests(self.settings, self.prompts, times, salt)
        for load in timed:
            if answer := times.get(load.name):
                took = f"an answer takes {answer.seconds:.2g} s without speculation"
                size = lab.blocks[load.name].size
                display.note(f"{load.name}: {took}, a block has {size} requests")

    def repeats_note(self, blocks: Iterable[Blocks]) -> str:
        """Whether answers are remembered within a block; empty where none are. Of blocks that have
        their final size: larger ones repeat more."""
        remembering = self.backend.capabilities().forget_paths
        if not self.settings.serving.forgets:
            return ""  # it was said that all are
        parts = [(each.num_repeats, len(each.plan)) for each in blocks]
        num_repeats, total = map(sum, zip(*parts, strict=True))
        if not num_repeats or not any(arm.method in remembering for arm in self.search.arms):
            return ""
        return (
            f"up to {num_repeats} of {total} requests repeat a prompt of their own block, whose "
            "answer may be remembered; give more prompts, or a smaller --block"
        )


def run_tuning(
    plan: RunPlan, folder: Path, display: Display, *, retries_failed: bool = False
) -> Results:
    """Searches, or continues the search that `folder` holds."""
    with (
        Journal(folder / "journal.jsonl", plan.header) as journal,
        plan.lab(
            folder / "logs", display.starting, journal.each_start_s(), display.answered
        ) as lab,
    ):
        if plan.keeping.memory:
            display.note(plan.keeping.memory)
        for warning in plan.context.warnings:
            display.note(f"note: {warning}")
        settings = replace(plan.search, pace=plan.guess_pace(lab.blocks, journal.answer_times))
        words, time_told = TimeTold(settings, journal).first()
        if journal.is_resumed:
            display.note(resumed_words(journal, folder, settings.budget_s))
        if words:
            display.note(words)
        if retries_failed:
            journal.retry_failed()
        for (load, arm), failure in journal.failures.items():
            display.note(
                f"{arm} failed at {load} ({failure.reason}): --retry-failed tries it again"
            )
        plan.deal_again(lab, journal, display)
        context = plan.context
        if repeats := plan.repeats_note(lab.blocks.values()):
            display.note(f"note: {repeats}")
            context = replace(context, warnings=(*context.warnings, repeats))
        settings = replace(settings, pace=plan.guess_pace(lab.blocks, journal.answer_times))
        time_told = replace(time_told, settings=settings)

        def show(progress: Progress) -> None:
            nonlocal time_told
            words, time_told = time_told.again()
            if words:
                display.note(words)
            display.progress(progress)

        search = Search(settings, journal, lab.measure, show, lab.prepare)
        outcomes, schedule = search.run()
        return make_results(context, settings, outcomes, schedule, journal)


@dataclass(frozen=True, slots=True)
class Ground:
    """What is measured, and on what."""

    backend: Backend
    target: str
    arms: Sequence[Speculation]
    drafts: Sequence[str]  # whose training prompts are left out
    pruned: Sequence[Pruned] = ()
    pruner: Pruner | None = None  # None: memory of other hosts is not planned from here
    servers: Mapping[str, str] | None = None  # of others, by their arms: what they say of it
    notes: Sequence[str] = ()


def plan_run(settings: RunSettings) -> RunPlan:
    """Looks for the engine and the models, and works out arms and requests."""
    if settings.servers:
        ground = _servers_of_others(settings)
    else:
        slots = backend_named(settings.engine).capabilities().default_num_seqs
        settings = settings.with_slots(slots)
        ground = _own_engines(settings)
    backend, arms, pruner = ground.backend, ground.arms, ground.pruner
    supported = backend.capabilities()
    prompts, notes = unseen_prompts(settings.prompts, ground.drafts)
    blocks = deal_requests(settings, prompts)
    longest = {name: members[-1] for name, members in by_proposer(arms).items()}
    plans = {
        name: plan
        for name, arm in longest.items()
        if pruner is not None and (plan := pruner.plan(arm))
    }
    keeping, cards = place_engines(settings, backend, plans, arms)
    rules = Rules(
        settings.objective,
        margin=settings.margin,
        max_blocks=MAX_BLOCKS,
        fills_slots=True,
        memory={name: plan.shares for name, plan in plans.items() if plan.shares is not None},
        pairing={name: plan.pairing for name, plan in plans.items() if plan.pairing is not None},
    )
    search = SearchSettings(
        tuple(arms),
        settings.loads,
        rules,
        settings.budget_s,
        {
            each.name: 1
            for each in settings.loads
            if blocks[each.name].size >= _LARGE_BLOCK or not supported.shares_process
        },
        schedule_methods=supported.schedule_methods,
        keeps_engines=keeping.how != VISITS,
        shares_process=supported.shares_process,
        cards=cards,
    )
    # Known ways in which the engine would disappoint, each once
    traffic = Traffic(
        concurrency=max(load.concurrency or 1 for load in settings.loads),
        temperatures=tuple(temperature for temperature, _ in settings.mix),
    )
    warnings = [
        each
        for arm in (OFF, *longest.values())
        for each in preflight(backend, settings.serving, arm, traffic)
    ]
    context = RunContext(
        settings=settings.options,
        backend=settings.options.get("backend", backend.name),
        target=ground.target,
        pruned=tuple(ground.pruned),
        memory=pruner.memory if pruner is not None else lambda speculation: None,
        warnings=(
            *ground.notes,
            *settings.prompt_notes,
            *notes,
            *([] if settings.serving.forgets else [REMEMBERED]),
            *filter(None, [keeping.note, cards.note]),
            *dict.fromkeys(warnings),
        ),
    )
    header = identify(settings, backend, prompts, arms, ground.servers)
    if not supported.shares_process:  # blocks of one way of keeping engines say nothing in another
        header["way of keeping engines"] = keeping.words
    if cards.others:
        header["cards of engines"] = cards.words
    size = None if pruner is None else pruner.num_parameters()
    return RunPlan(settings, backend, search, blocks, context, header, prompts, keeping, size)


def _own_engines(settings: RunSettings) -> Ground:
    """Engines that are started here, for all arms that can run."""
    backend, target = backend_named(settings.engine), settings.serving.target
    supported = backend.capabilities()
    if supported.needs_local_files:
        resolve(target)  # fetched now, or refused in one line
    pruner = Pruner(settings.serving, settings.devices)

    def why_not(proposer: Speculation) -> str | None:
        try:
            check_supported(backend, settings.serving, proposer)
        except OptionError as error:
            return str(error)
        return pruner.unfit(proposer)

    space = _space(settings, supported)
    arms, pruned = enumerate_arms(space, why_not)
    pruned += pruned_ks(settings.space.ks, space.ks)
    if not arms:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in pruned)
        raise OptionError(f"nothing to try: {reasons or 'no method is left'}")
    return Ground(backend, target, arms, _drafts_of(arms), pruned, pruner)


def _servers_of_others(settings: RunSettings) -> Ground:
    """An arm for each server, whatever its engine could do beside."""
    found = find_servers(settings.servers, settings.api_key, forgets=settings.serving.forgets)
    arms = [each.speculation for each in settings.servers if not each.speculation.is_off]
    drafts, unknown = known_drafts(_drafts_of(arms))
    named = settings.serving.target
    return Ground(
        found.backend,
        found.model if named == TARGET.default else named,
        arms,
        drafts,
        servers=found.identities,
        notes=(*found.notes, *unknown),
    )


def _drafts_of(arms: Iterable[Speculation]) -> list[str]:
    return list(dict.fromkeys(arm.draft for arm in arms if arm.draft is not None))


def _space(settings: RunSettings, supported: Capabilities) -> Space:
    space = settings.space
    drafts = drafts_by_method(settings.serving.target, settings.drafts)
    # A method that was not named is left out without a word where it has no draft.
    can_draft = {method: bool(drafts.get(method)) for method in WITH_DRAFT}
    can_draft["mtp"] = bool(mtp_layers(settings.serving.target))
    # auto is measured where it is named: it has no draft length to search for.
    methods = [each for each in METHODS[1:] if can_draft.get(each, True) and each != "auto"]
    return replace(
        space,
        methods=space.methods or tuple(each for each in methods if each in supported.methods),
        drafts=drafts,
        ks=space.ks if supported.shares_process else spread_ks(space.ks, _FEW_KS),
        head_devices=head_devices(
            is_supported=supported.has_draft_tensor_parallel,
            target_devices=settings.serving.tensor_parallel_size,
        ),
    )
