"""The engine: add requests, step, abort. One step is schedule → propose → run → verify → finish.

Speculation changes only how long this takes: with the `coupled` rule the tokens of a sequence
are the same with any proposer, any draft length, or none.
"""

import secrets
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import torch
from torch import Tensor

from outdraft.acceptance import Acceptance
from outdraft.engine.costs import CostsTimer
from outdraft.engine.draft_lengths import NO_LIMITS, Limits, Temperatures, draft_lengths
from outdraft.engine.drafting import Drafted, Drafting
from outdraft.engine.loading import LoadedModel
from outdraft.engine.logprobs import score_prompt, token_logprobs
from outdraft.engine.outputs import Generation, StepResult, Update
from outdraft.engine.runners.compiled import CompiledRunner
from outdraft.engine.sampling import mix64, processed_logits
from outdraft.engine.scheduler import Scheduler
from outdraft.engine.sequence import FinishReason, SamplingParams, Sequence, Status, TimeObjective
from outdraft.engine.step import Segment
from outdraft.engine.tokenizer import Tokenizer
from outdraft.engine.transcript import Transcript
from outdraft.engine.verify import verify
from outdraft.errors import OptionError, RequestError
from outdraft.speculation import OFF, Speculation
from outdraft.step_costs import RoundCosts


@dataclass(slots=True)
class _Live:
    """A sequence that is not finished, its text and its outcome."""

    sequence: Sequence
    transcript: Transcript
    generation: Generation


class Engine:
    def __init__(
        self,
        model: LoadedModel,
        tokenizer: Tokenizer,
        *,
        speculation: Speculation = OFF,
        costs: CostsTimer,
        drafting: Drafting | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
    ) -> None:
        self.tokenizer = tokenizer
        self.speculation = speculation
        self.limits: Limits = NO_LIMITS  # of an operator; read once in each step
        self.max_context = model.max_context
        limit = " (all that its KV cache has room for)"
        self._context_limit = limit if model.is_cache_limited else ""
        self.vocab_size = model.spec.vocab_size
        self.acceptance = Acceptance()  # over all sequences
        self.pool = model.pool
        self._runner = model.runner
        self.drafting = drafting
        self._costs = costs
        self.scheduler = Scheduler(
            model.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
        )
        self._max_num_batched_tokens = max_num_batched_tokens
        self._eos_ids = frozenset(tokenizer.eos_ids) | frozenset(model.spec.eos_ids)
        self._live: dict[int, _Live] = {}  # by sequence id
        self._ids = count()

    @property
    def is_compiled(self) -> bool:
        """Whether a step of the target is a call of the compiled library, else of torch's."""
        return isinstance(self._runner, CompiledRunner)

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def speculates(self) -> bool:
        """Whether drafts are made at any load, as it is set now."""
        return not self.speculation.is_off and not self.limits.stops_all

    def k_at(self, num_running: int) -> int:
        """The draft length of a request without one of its own, as it is set now."""
        return min(self.speculation.k_at(num_running), self.limits.k_at(num_running))

    def measure_costs(self) -> RoundCosts:
        """What rounds cost on this machine, which also warms it up. Only while nothing runs."""
        if self.has_work:
            raise OptionError("step costs cannot be measured while requests are running")
        self.forget()  # cached blocks are overwritten
        return self._costs.measure()

    def add_request(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        k: int | None = None,
        objective: TimeObjective | None = None,
        arrived_ns: int | None = None,
    ) -> str:
        """Queues a prompt (text, or token ids) and returns its request id.

        `k` overrides the engine's draft length for this request; 0 turns speculation off.
        `objective`: with method auto, texts that would miss theirs get drafts first. `arrived_ns`
        (of time.perf_counter_ns) is when the request arrived, if not now.
        """
        params = params or SamplingParams()
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        self.check(tokens, params, k)
        first = next(self._ids)
        request_id = f"req-{first}" if request_id is None else request_id
        if self._lives_of(request_id):
            raise RequestError(f"request id {request_id!r} is in use; choose another")
        seed = secrets.randbits(63) if params.seed is None else params.seed
        stop_ids = frozenset(params.stop_token_ids)
        arrived_ns = arrived_ns or time.perf_counter_ns()
        for index in range(params.n):
            sequence = Sequence(
                id=first if index == 0 else next(self._ids),
                request_id=request_id,
                index=index,
                tokens=list(tokens),
                num_prompt_tokens=len(tokens),
                params=params,
                seed=seed if index == 0 else mix64(mix64(seed) ^ index),
                stop_ids=stop_ids if params.ignore_eos else stop_ids | self._eos_ids,
                max_draft_tokens=k,
                objective=objective,
                arrived_ns=arrived_ns,
            )
            generation = Generation(
                request_id,
                index,
                len(tokens),
                logprobs=None if params.logprobs is None else [],
                prompt_logprobs=None if params.prompt_logprobs is None else [None],
                seed=sequence.seed,
                acceptance=sequence.acceptance,
                temperature=params.temperature,
                is_lossy=self.speculation.is_lossy and k != 0,
                added_ns=arrived_ns,
            )
            transcript = Transcript(self.tokenizer, params.stop, after=tokens)
            self._live[sequence.id] = _Live(sequence, transcript, generation)
            self.scheduler.add(sequence)
        return request_id

    def abort(self, request_id: str) -> None:
        """Ends a request at once and frees what it holds. Harmless when it is unknown."""
        for live in self._lives_of(request_id):
            self._end(live, FinishReason.ABORT)
            self.scheduler.remove(live.sequence)

    def forget(self) -> None:
        """Drops what is kept of earlier requests to speed up later ones."""
        self.pool.forget()
        if self.drafting is not None:
            self.drafting.forget()

    def check(self, tokens: Seq[int], params: SamplingParams, k: int | None = None) -> None:
        """Raises what `add_request` would; changes nothing and may be called from any thread."""
        if not tokens:
            raise RequestError("the prompt is empty; give at least one token")
        for error, name, ids in (
            (RequestError, "token id", tokens),
            (OptionError, "logit_bias:", params.logit_bias),
            (OptionError, "stop_token_ids:", params.stop_token_ids),
        ):
            outside = next((token for token in ids if not 0 <= token < self.vocab_size), None)
            if outside is not None:
                raise error(f"{name} {outside} is outside the vocabulary of {self.vocab_size}")
        if len(tokens) >= self.max_context:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens and the context holds {self.max_context}"
                f"{self._context_limit}; shorten it by at least "
                f"{len(tokens) - self.max_context + 1} (one token must be left to write)"
            )
        if k is not None and k < 0:
            raise OptionError(f"k must not be negative, got {k}")

    @torch.inference_mode()
    def step(self, *, inverted: Temperatures | None = None) -> StepResult:
        """Computes one batch: what it added to each choice, and what it did. `inverted`, as a
        canary asks for it: texts without drafts, or with them where limits keep them away."""
        step = self.scheduler.schedule()
        if not step.segments:
            return StepResult([], None)
        started_ns = time.perf_counter_ns()
        for segment in step.segments:
            generation = self._live[segment.sequence.id].generation
            generation.started_ns = generation.started_ns or started_ns
        limits, loaded = self.limits, (self.speculation, self.scheduler.num_running)
        lengths: list[int] = []
        drafted = Drafted()
        if self.drafting is not None:
            lengths = draft_lengths(*loaded, limits, step.segments, inverted)
            rooms = [self._room(*each) for each in zip(step.segments, lengths, strict=True)]
            rooms = [min(each, self.scheduler.room) for each in rooms]
            drafted = self.drafting.propose(step.segments, rooms, self.scheduler.attach)
        result = self._runner.run(step.runs())
        for segment, logits in step.prompt_logits(result.logits):
            scores = self._live[segment.sequence.id].generation.prompt_logprobs
            if scores is not None:
                score_prompt(scores, segment.sequence, segment.start, logits)
        emitted: list[list[int]] = []
        if step.drawing:
            round_ = step.round(drafted.probs)
            processed = processed_logits(step.drawn_logits(result.logits), round_.rows)
            emitted = verify(
                self.speculation.rule,
                processed,
                round_,
                posterior_threshold=self.speculation.posterior_threshold,
                posterior_alpha=self.speculation.posterior_alpha,
            )
            step.accept(emitted)
        if self.drafting is not None and result.features is not None:
            self.drafting.observe(partial(step.observations, result.features))
        if self.drafting is not None:  # before texts end and are forgotten
            self.drafting.learn(drafted, (time.perf_counter_ns() - started_ns) / 1e9)
        updates = [
            self._append(segment, tokens, processed, round_.rows_of(index))
            for index, (segment, tokens) in enumerate(zip(step.drawing, emitted, strict=True))
        ]
        self.scheduler.finish(step)
        num_emitted = sum(len(update.tokens) for update in updates)
        seconds = (time.perf_counter_ns() - started_ns) / 1e9
        stats = step.stats(num_emitted, max(lengths, default=0), seconds)
        stopped = limits.stopped(*loaded, stats.temperatures)
        return StepResult(
            updates,
            replace(
                stats,
                is_stopped=limits.stops(*loaded),
                stopped=stopped,
                drafting_s=drafted.seconds,
            ),
        )

    def _room(self, segment: Segment, k: int) -> int:
        """Draft tokens that a segment may get: at most k, and none that would be wasted. The last
        token of a round is the target's own."""
        sequence = segment.sequence
        left = min(
            sequence.params.max_tokens - sequence.num_output_tokens,
            self.max_context - len(sequence),
        )
        return max(min(k, left - 1), 0)

    def _append(
        self, segment: Segment, tokens: list[int], processed: Tensor, rows: slice
    ) -> Update:
        """Appends emitted tokens until the text ends. `rows` of `processed` are the segment's."""
        live = self._live[segment.sequence.id]
        sequence, generation, transcript = live.sequence, live.generation, live.transcript
        reason = None
        kept: list[int] = []
        for token in tokens:
            sequence.tokens.append(token)
            kept.append(token)
            reason = self._reason_to_finish(sequence, transcript, token)
            if reason is not None:
                break
        num_accepted = min(segment.num_accepted, len(kept))
        if generation.first_token_ns is None:
            generation.first_token_ns = sequence.first_token_ns = time.perf_counter_ns()
        else:
            for acceptance in (sequence.acceptance, self.acceptance):
                acceptance.record(len(segment.drafts), num_accepted)
        logprobs = None
        if generation.logprobs is not None:
            own = processed[rows][: len(kept)]
            logprobs = token_logprobs(own, kept, sequence.params.logprobs or 0)
            generation.logprobs += logprobs
        generation.tokens += kept
        if reason is not None:
            self._end(live, reason)
        text = transcript.take(final=reason is not None)
        return Update(
            sequence.request_id,
            sequence.index,
            kept,
            num_accepted,
            text,
            logprobs,
            reason,
            generation=None if reason is None else generation,
            num_drafted=len(segment.drafts),
            proposer=segment.proposer,
            why=segment.why,
        )

    def _reason_to_finish(
        self, sequence: Sequence, transcript: Transcript, token: int
    ) -> FinishReason | None:
        enough = sequence.num_output_tokens >= sequence.params.min_tokens
        if token in sequence.stop_ids and enough:
            return FinishReason.STOP
        if transcript.push(token, may_stop=enough):
            return FinishReason.STOP
        full = len(sequence) >= self.max_context
        if full or sequence.num_output_tokens >= sequence.params.max_tokens:
            return FinishReason.LENGTH
        return None

    def _end(self, live: _Live, reason: FinishReason) -> None:
        sequence, generation = live.sequence, live.generation
        sequence.status = Status.FINISHED
        generation.finish_reason = reason
        if self.drafting is not None:
            self.drafting.release(sequence)
        del self._live[sequence.id]
        live.transcript.finish()
        generation.text = live.transcript.text
        generation.num_cached_tokens = sequence.num_cached
        generation.num_preemptions = sequence.num_preemptions
        generation.finished_ns = time.perf_counter_ns()

    def _lives_of(self, request_id: str) -> list[_Live]:
        return [live for live in self._live.values() if live.sequence.request_id == request_id]

    def generate(
        self,
        prompts: str | Seq[str | Seq[int]],
        params: SamplingParams | Seq[SamplingParams] | None = None,
        *,
        k: int | None = None,
    ) -> list[Generation]:
        """Runs prompts to their end and returns their texts in order, n for each."""
        prompts = [prompts] if isinstance(prompts, str) else prompts
        each = params if isinstance(params, Seq) else [params] * len(prompts)
        if len(each) != len(prompts):
            raise OptionError(
                f"{len(prompts)} prompts and {len(each)} sampling params; give one for each, "
                "or a single one for all"
            )
        generations: list[Generation] = []
        ids: list[str] = []
        try:
            for prompt, wanted in zip(prompts, each, strict=True):
                ids.append(self.add_request(prompt, wanted, k=k))
                generations += [live.generation for live in self._lives_of(ids[-1])]
            while any(generation.finished_ns is None for generation in generations):
                self.step()
        except BaseException:
            for request_id in ids:
                self.abort(request_id)
            raise
        return generations

    def stream(
        self, prompt: str | Seq[int], params: SamplingParams | None = None, *, k: int | None = None
    ) -> Iterator[Update | Generation]:
        """Updates of one request as they come, then its generation(s)."""
        request_id = self.add_request(prompt, params, k=k)
        lives = self._lives_of(request_id)
        try:
            while any(live.generation.finished_ns is None for live in lives):
                yield from (u for u in self.step() if u.request_id == request_id)
        finally:
            self.abort(request_id)
        yield from (live.generation for live in lives)
