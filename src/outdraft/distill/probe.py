"""A short try before a distillation: how fast this machine writes texts and trains on them."""

import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from outdraft.distill.data.prompts import ChatFormat
from outdraft.distill.data.sampler import SampledText, SampleRequest, TextSampler
from outdraft.distill.data.shards import Corpus, TrainingText, write_shard
from outdraft.distill.settings import DistillSettings, TrainSettings
from outdraft.distill.target import Target
from outdraft.distill.timing import Speeds
from outdraft.distill.training.drafts import AnyDraft, make_draft
from outdraft.distill.training.train import Trainer
from outdraft.workload.prompt import Prompt

_TOKENS = 32  # of each text: two looks at what has ended
_SHARE = 0.1  # of the time: after that, half of these tokens will do
_MAX_PROMPT_TOKENS = 128  # a usual length, so that the first try is a usual one
Clock = Callable[[], float]


def measure_speeds(
    target: Target,
    sampler: TextSampler,
    prompts: Sequence[Prompt],
    job: DistillSettings,
    clock: Clock,
) -> Speeds:
    """Writes a few tokens of as many texts as are written at once, then learns from them once."""
    chat = ChatFormat(target.tokenizer)
    encoded = [chat.encode_prompt(prompt)[-_MAX_PROMPT_TOKENS:] for prompt in prompts]
    longest = job.data_settings.room - _TOKENS
    chosen = list(islice(cycle(each[-longest:] for each in encoded), sampler.num_texts))
    requests = [SampleRequest(each, 0.7, _TOKENS) for each in chosen]
    started = clock()
    over_at = started + _SHARE * job.budget_s
    found = sampler.run_until(requests, 0, lambda lengths: clock() > over_at)
    seconds = max(clock() - started, 1e-9)
    texts = [found[index] for index in range(len(requests))]  # all began at once
    written = sum(len(text.tokens) for text in texts)
    step_s = None
    if "train" in job.stages:
        corpus = _corpus_of(requests, texts)
        draft = make_draft(target, corpus, job.size, seed=0, start=job.start)
        step_s = step_seconds(draft, target, corpus, job.train_settings, clock)
    return Speeds(written / seconds, step_s)


def step_seconds(
    draft: AnyDraft, target: Target, corpus: Corpus, settings: TrainSettings, clock: Clock
) -> float:
    """Of a training step, whose result is thrown away; the first one of a process is slow."""
    trainer = Trainer(draft, target, settings)
    batches = corpus.by_length(range(len(corpus)), settings.batch_tokens)
    batch = corpus.batch(max(batches, key=lambda each: sum(corpus.lengths[i] for i in each)),
                         target.device)  # fmt: skip
    for _ in range(2):
        started = clock()
        float(trainer.gradients(batch))
        seconds = clock() - started
    trainer.forget_gradients()
    return max(seconds, 1e-9) * settings.batch_tokens / batch.tokens.numel()


def _corpus_of(requests: Sequence[SampleRequest], texts: Sequence[SampledText]) -> Corpus:
    made = [
        TrainingText(request.prompt, text, request.temperature, "")
        for request, text in zip(requests, texts, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="outdraft-") as scratch:
        path = Path(scratch) / "tried.safetensors"
        write_shard(path, made)
        return Corpus([path])
