"""A step's rows: which belong to whom, whatever mixture of prompts and rounds it computes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.engine.step import Round, Segment, Step


def sequence(
    number: int,
    length: int,
    num_computed: int,
    *,
    num_prompt: int | None = None,
    scored: bool = False,
) -> Sequence:
    params = SamplingParams(prompt_logprobs=0 if scored else None)
    prompt = length if num_prompt is None else num_prompt
    one = Sequence(number, "r", 0, [number] * length, prompt, params, 0, frozenset())
    one.num_computed = num_computed
    return one


def mixed() -> Step:
    """A round with drafts, a chunk of a prompt, a scored prompt to its end, a round without."""
    return Step(
        [
            Segment(sequence(0, 9, 8, num_prompt=4), 1, [5, 6, 7]),
            Segment(sequence(1, 8, 4), 2),
            Segment(sequence(2, 3, 0, scored=True), 3),
            Segment(sequence(3, 3, 2, num_prompt=2), 1),
        ]
    )


def test_features_leave_out_refused_drafts() -> None:
    step = mixed()
    step.accept([[5, 6, 1], [4], [4]])
    shown = step.observations(torch.arange(4 + 2 + 3 + 1)[:, None])
    assert [(one.sequence.id, one.start) for one in shown] == [(0, 8), (1, 4), (2, 0), (3, 2)]
    rows = [one.features[one.first : one.end, 0].tolist() for one in shown]
    assert rows == [[0, 1, 2], [4, 5], [6, 7, 8], [9]]


def test_runs_and_rows_of_logits() -> None:
    step = mixed()
    runs = step.runs()
    assert [run.tokens for run in runs] == [[0, 5, 6, 7], [1, 1], [2, 2, 2], [3]]
    assert [run.start for run in runs] == [8, 4, 0, 2]
    assert [run.num_logits for run in runs] == [4, 0, 3, 1]
    logits = torch.arange(8)[:, None]
    [(segment, scored)] = step.prompt_logits(logits)
    assert (segment.sequence.id, scored[:, 0].tolist()) == (2, [4, 5])
    assert step.drawn_logits(logits)[:, 0].tolist() == [0, 1, 2, 3, 6, 7]


def test_nothing_is_copied_without_a_scored_prompt() -> None:
    step = Step([Segment(sequence(0, 3, 2), 1), Segment(sequence(1, 8, 0), 2)])
    logits = torch.zeros(1, 4)
    assert step.drawn_logits(logits) is logits
    assert list(step.prompt_logits(logits)) == []


def test_stats_count_tokens_once() -> None:
    stats = mixed().stats(num_emitted=5, max_k=4, seconds=0.1)
    assert (stats.num_sequences, stats.num_tokens, stats.num_prompt_tokens) == (4, 10, 5)
    assert stats.draft_lengths == [3, 0]
    assert (stats.num_emitted, stats.num_decoded) == (5, 4)  # one is a first token
    assert not stats.is_decoding


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=5))
def test_a_round_has_a_row_for_every_draft_and_one_more(drafts: list[list[int]]) -> None:
    sequences = [sequence(number, 2, 1) for number in range(len(drafts))]
    round_ = Round(sequences, drafts)
    values = list(range(len(round_.rows)))
    parts = round_.by_sequence(values)
    assert [value for part in parts for value in part] == values
    assert [len(part) for part in parts] == [len(draft) + 1 for draft in drafts]
    assert [values[round_.rows_of(index)] for index in range(len(drafts))] == parts
    assert round_.draft_rows == [value for part in parts for value in part[:-1]]
    for one, draft, part in zip(sequences, drafts, parts, strict=True):
        rows = [round_.rows[value] for value in part]
        assert all(row.sequence is one for row in rows)
        assert [list(row.drafts) for row in rows] == [draft[:n] for n in range(len(draft) + 1)]
