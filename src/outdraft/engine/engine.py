"""The engine: add requests, step, abort. One step is schedule → propose → run → verify.

Nothing here depends on the speculation but the clock: with the `coupled` rule the tokens
of a sequence are the same with any proposer, any draft length, or none.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import count

import torch
from torch import Tensor

from outdraft.engine.admission import check_request
from outdraft.engine.costs import StepCosts, measure_step_costs
from outdraft.engine.loading import LoadedModel
from outdraft.engine.logprobs import score_prompt, token_logprobs
from outdraft.engine.outputs import Generation, StepStats, Update
from outdraft.engine.proposers.proposer import Ask, Observer, Proposer
from outdraft.engine.sampling import Row, mix64, processed_logits
from outdraft.engine.scheduler import Scheduler, Work, seen
from outdraft.engine.sequence import Acceptance, FinishReason, SamplingParams, Sequence, Status
from outdraft.engine.tokenizer import Tokenizer
from outdraft.engine.transcript import Transcript
from outdraft.engine.verify import Round, verify
from outdraft.errors import OptionError, RequestError
from outdraft.speculation import OFF, Speculation


class _Live:
    """A sequence with what its reader needs."""

    def __init__(self, sequence: Sequence, transcript: Transcript, generation: Generation) -> None:
        self.sequence = sequence
        self.transcript = transcript
        self.generation = generation


class Engine:
    def __init__(
        self,
        model: LoadedModel,
        tokenizer: Tokenizer,
        *,
        speculation: Speculation = OFF,
        proposer: Proposer | None = None,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 512,
    ) -> None:
        self.tokenizer = tokenizer
        self.speculation = speculation
        self.max_context = model.max_context
        self._context_limit = (
            " (all that its KV cache has room for)" if model.is_cache_limited else ""
        )
        self.vocab_size = model.spec.vocab_size
        self.acceptance = Acceptance()  # over all sequences
        self.last_step: StepStats | None = None
        self.pool = model.pool
        self._runner = model.runner
        self._proposer = proposer
        self._scheduler = Scheduler(
            model.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
        )
        self._max_num_batched_tokens = max_num_batched_tokens
        self._eos_ids = frozenset(tokenizer.eos_ids) | frozenset(model.spec.eos_ids)
        self._live: dict[int, _Live] = {}  # by sequence id
        self._ids = count()

    @property
    def num_running(self) -> int:
        return self._scheduler.num_running

    @property
    def num_waiting(self) -> int:
        return self._scheduler.num_waiting

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def num_preemptions(self) -> int:
        return self._scheduler.num_preemptions

    @property
    def prefix_hits(self) -> tuple[int, int]:
        """Prompt tokens found in the cache, and those looked for."""
        return self._scheduler.num_prefix_hits, self._scheduler.num_prefix_queries

    def measure_step_costs(self) -> StepCosts:
        """Times steps on this machine, which warms it up too. Only while nothing runs."""
        if self.has_work:
            raise OptionError("step costs cannot be measured while requests are running")
        self.forget()  # the blocks written here hold no text
        return measure_step_costs(self._runner, max_tokens=self._max_num_batched_tokens)

    # ------------------------------------------------------------ requests

    def add_request(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        k: int | None = None,
        arrived_ns: int | None = None,
    ) -> str:
        """Queues a prompt (text, or token ids) and returns its request id.

        `k` overrides the engine's draft length for this request, 0 turns speculation off.
        `arrived_ns` (of time.perf_counter_ns) is when its clock starts, if not now.
        """
        params = params or SamplingParams()
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        self.check(tokens, params, k)
        first = next(self._ids)
        request_id = f"req-{first}" if request_id is None else request_id
        if any(live.sequence.request_id == request_id for live in self._live.values()):
            raise RequestError(f"request id {request_id!r} is in use; choose another")
        seed = secrets.randbits(63) if params.seed is None else params.seed
        stop_ids = frozenset(params.stop_token_ids)
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
                added_ns=arrived_ns or time.perf_counter_ns(),
            )
            transcript = Transcript(self.tokenizer, params.stop, after=tokens)
            self._live[sequence.id] = _Live(sequence, transcript, generation)
            self._scheduler.add(sequence)
        return request_id

    def abort(self, request_id: str) -> None:
        """Ends a request at once and gives back all it held. Harmless when it is unknown."""
        for live in [x for x in self._live.values() if x.sequence.request_id == request_id]:
            self._finish(live, FinishReason.ABORT)

    def forget(self) -> None:
        """Drops what earlier requests left behind to speed later ones up: a clean slate."""
        self.pool.forget()
        if self._proposer is not None:
            self._proposer.forget()

    def check(self, tokens: Seq[int], params: SamplingParams, k: int | None = None) -> None:
        """Raises what `add_request` would; changes nothing and may be called from any thread."""
        check_request(
            tokens,
            params,
            k,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
            context_limit=self._context_limit,
        )

    # ------------------------------------------------------------ the step

    @torch.inference_mode()
    def step(self) -> list[Update]:
        """Computes one batch; returns what it added to each choice that moved."""
        works = self._scheduler.schedule()
        if not works:
            return []
        started_ns = time.perf_counter_ns()
        for work in works:
            generation = self._live[work.sequence.id].generation
            generation.started_ns = generation.started_ns or started_ns
        probs = self._propose(works)
        result = self._runner.run([work.run() for work in works])
        logits = self._without_prompts(works, result.logits)
        drawing = [work for work in works if work.reaches_end]
        rows = [
            Row(work.sequence, tuple(work.drafts[:length]))
            for work in drawing
            for length in range(work.num_drawn)
        ]
        decoding = [work for work in drawing if work.sequence.num_output_tokens]
        emitted: list[list[int]] = []
        processed: Tensor | None = None
        if drawing:
            processed = processed_logits(logits, rows)
            emitted = verify(
                self.speculation.rule,
                processed,
                Round(rows, [len(work.drafts) for work in drawing], probs),
                posterior_threshold=self.speculation.posterior_threshold,
                posterior_alpha=self.speculation.posterior_alpha,
            )
        if result.features is not None and isinstance(self._proposer, Observer):
            self._proposer.observe(seen(works, emitted, result.features))
        for work in works:
            if not work.reaches_end:
                self._scheduler.commit(work, 0)
                self._scheduler.publish(work.sequence)
        updates = []
        first_row = 0
        for work, tokens in zip(drawing, emitted, strict=True):
            updates.append(self._append(work, tokens, processed, first_row))
            first_row += len(work.drafts) + 1
        self.last_step = StepStats(
            num_sequences=len(works),
            num_tokens=sum(work.num_tokens + len(work.drafts) for work in works),
            num_prompt_tokens=sum(work.num_tokens for work in works) - len(decoding),
            draft_lengths=[len(work.drafts) for work in decoding],
            num_emitted=sum(len(update.tokens) for update in updates),
            seconds=(time.perf_counter_ns() - started_ns) / 1e9,
        )
        return updates

    def _without_prompts(self, works: Seq[Work], logits: Tensor) -> Tensor:
        """Records the prompts' logprobs where they are wanted; the logits of all other rows."""
        if not any(work.scores_prompt for work in works):
            return logits
        kept = []
        row = 0
        for work in works:
            end = row + work.num_logits
            scored = self._live[work.sequence.id].generation.prompt_logprobs
            if scored is not None and work.scores_prompt:
                score_prompt(scored, work.sequence, logits[row : end - work.num_drawn])
            kept.append(logits[end - work.num_drawn : end])
            row = end
        return torch.cat(kept)

    def _propose(self, works: Seq[Work]) -> Tensor | None:
        """Attaches drafts to the sequences that are decoding; their probabilities, if kept."""
        asks: list[Ask] = []
        asked: list[Work] = []
        default_k = self.speculation.k_at(self._scheduler.num_running)
        for work in works if self._proposer else ():
            sequence = work.sequence
            k = default_k if sequence.max_draft_tokens is None else sequence.max_draft_tokens
            left = min(
                sequence.params.max_tokens - sequence.num_output_tokens,
                self.max_context - len(sequence),
            )
            # The round's last token is the target's own: a draft for it would be wasted.
            k = min(k, left - 1)
            if k > 0 and sequence.num_output_tokens and sequence.num_uncomputed == 1:
                asks.append(Ask(sequence, k))
                asked.append(work)
        if not asks or self._proposer is None:
            return None
        kept = []
        for work, draft in zip(asked, self._proposer.propose(asks), strict=True):
            self._scheduler.attach(work, draft.tokens)
            if draft.probs is not None:
                kept.append(draft.probs[: len(work.drafts)])
        return torch.cat(kept) if kept else None

    def _append(
        self, work: Work, tokens: list[int], processed: Tensor | None, first_row: int
    ) -> Update:
        live = self._live[work.sequence.id]
        sequence, generation, transcript = live.sequence, live.generation, live.transcript
        num_accepted = len(tokens) - 1
        self._scheduler.commit(work, num_accepted)
        reason = None
        kept: list[int] = []
        for token in tokens:
            sequence.tokens.append(token)
            kept.append(token)
            reason = self._reason_to_finish(sequence, transcript, token)
            if reason is not None:
                break
        num_accepted = min(num_accepted, len(kept))
        if generation.first_token_ns is None:
            generation.first_token_ns = time.perf_counter_ns()
        else:
            for counted in (sequence.acceptance, self.acceptance):
                counted.record(len(work.drafts), num_accepted)
        logprobs = None
        if generation.logprobs is not None and processed is not None:
            part = processed[first_row : first_row + len(kept)]
            logprobs = token_logprobs(part, kept, sequence.params.logprobs or 0)
            generation.logprobs += logprobs
        self._scheduler.publish(sequence)
        generation.tokens += kept
        if reason is not None:
            self._finish(live, reason)
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

    def _finish(self, live: _Live, reason: FinishReason) -> None:
        sequence, generation = live.sequence, live.generation
        sequence.status = Status.FINISHED
        sequence.finish_reason = generation.finish_reason = reason
        self._scheduler.remove(sequence)
        if self._proposer is not None:
            self._proposer.release(sequence)
        del self._live[sequence.id]
        live.transcript.finish()
        generation.text = live.transcript.text
        generation.num_cached_tokens = sequence.num_cached
        generation.num_preemptions = sequence.num_preemptions
        generation.finished_ns = time.perf_counter_ns()

    # ------------------------------------------------------------ for scripts

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
                mine = [x for x in self._live.values() if x.sequence.request_id == ids[-1]]
                generations += [live.generation for live in mine]
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
        lives = [x for x in self._live.values() if x.sequence.request_id == request_id]
        try:
            while any(live.generation.finished_ns is None for live in lives):
                yield from (u for u in self.step() if u.request_id == request_id)
        finally:
            self.abort(request_id)
        yield from (live.generation for live in lives)
