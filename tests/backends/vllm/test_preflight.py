"""Warnings about vLLM before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.backends.backend import Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.installation import Installation
from outdraft.backends.vllm.backend import Vllm
from outdraft.backends.vllm.installation import TABLE
from outdraft.speculation import OFF, Speculation

NEWEST = TABLE.installation()
ON_CPU = replace(NEWEST, device="cpu")
NGRAM = Speculation("ngram")
HEAD = Speculation("eagle", draft="org/head", k=3)


def warnings(
    speculation: Speculation,
    traffic: Traffic,
    installation: Installation = NEWEST,
    serving: Serving | None = None,
) -> str:
    return "\n".join(preflight(Vllm(installation), serving or Serving("x"), speculation, traffic))


def test_quiet_traffic_has_no_warning() -> None:
    assert warnings(NGRAM, Traffic(concurrency=8, temperatures=(0.0, 0.7))) == ""
    assert warnings(NGRAM, Traffic(), ON_CPU) == ""


@pytest.mark.parametrize("field", ["min_p", "logit_bias"])
def test_refused_fields_are_named_under_speculation_only(field: str) -> None:
    traffic = Traffic(fields=frozenset({field, "top_p"}))
    assert field in warnings(NGRAM, traffic)
    assert warnings(OFF, traffic) == ""


def test_a_cpu_takes_greedy_requests_only() -> None:
    assert "top_k" in warnings(NGRAM, Traffic(fields=frozenset({"top_k"})), ON_CPU)
    assert "wrong tokens" in warnings(NGRAM, Traffic(temperatures=(0.0, 0.5)), ON_CPU)
    assert warnings(OFF, Traffic(temperatures=(0.5,)), ON_CPU) == ""


def test_runners_of_methods() -> None:
    sampled = Speculation("mtp", k=1, rule="rejection")
    assert "issue 54282" in warnings(sampled, Traffic(), TABLE.installation("0.28.0"))
    assert warnings(sampled, Traffic()) == ""
    heads = Speculation("medusa", draft="org/heads", k=5)
    assert "forgets draft tokens for medusa" in warnings(heads, Traffic()), "the older runner"


def test_a_k_of_zero_is_not_off() -> None:
    to_zero = replace(HEAD, schedule=((1, 8, 3), (9, 64, 0)))
    assert "not off" in warnings(to_zero, Traffic())
    assert "not off" not in warnings(replace(HEAD, schedule=((1, 8, 3), (9, 64, 1))), Traffic())


def test_an_old_flag_is_seen_too() -> None:
    serving = Serving("x", extra=("--speculative-disable-by-batch-size", "8"))
    assert "not off" in warnings(NGRAM, Traffic(), serving=serving)


def test_a_schedule_with_data_parallelism_is_left_out() -> None:
    scheduled = replace(HEAD, schedule=((1, 8, 3), (9, 64, 1)))
    for extra in (("--data-parallel-size", "2"), ("--data-parallel-size=2",)):
        assert "data parallelism" in warnings(
            scheduled, Traffic(), serving=Serving("x", extra=extra)
        )
    one = Serving("x", extra=("--data-parallel-size", "1"))
    assert "data parallelism" not in warnings(scheduled, Traffic(), serving=one)


def test_an_older_runner_drafts_more_than_the_schedule_says() -> None:
    scheduled = replace(HEAD, schedule=((1, 8, 3), (9, 64, 1)))
    assert "51510" in warnings(scheduled, Traffic(), TABLE.installation("0.28.0"))
    assert "51510" not in warnings(scheduled, Traffic(), TABLE.installation("0.32.0"))


def test_sampled_drafts_were_biased_up_to_0_28() -> None:
    sampled = replace(HEAD, rule="rejection")
    assert "54282" in warnings(sampled, Traffic(), TABLE.installation("0.28.0"))
    assert "54282" not in warnings(sampled, Traffic(), TABLE.installation("0.29.0"))
    assert "54282" not in warnings(HEAD, Traffic(), TABLE.installation("0.28.0"))


def test_the_profile_forgets_draft_tokens_on_the_older_runner() -> None:
    many = Serving("x", max_num_seqs=256)
    assert "out of memory" in warnings(NGRAM, Traffic(), TABLE.installation("0.28.0"), many)
    assert "out of memory" not in warnings(
        NGRAM, Traffic(), TABLE.installation("0.28.0"), Serving("x", max_num_seqs=16)
    )
    assert "out of memory" not in warnings(NGRAM, Traffic(), NEWEST, many)


def test_how_many_sequences_run_is_said_only_where_it_is_known() -> None:
    """ "256 sequences of 6", said a note on a card where vLLM takes 1,024 by itself."""
    older, six = TABLE.installation("0.22.1"), replace(NGRAM, k=6)
    for extra in (("--max-num-seqs", "512"), ("--max_num_seqs=512",)):
        said = warnings(six, Traffic(), older, Serving("x", max_num_seqs=64, extra=extra))
        assert "sequences of 6, 512 at a time, may run out" in said, "its own flag comes last"
    assert "sequences of 6, 300 at a time, may" in warnings(
        six, Traffic(), older, Serving("x", max_num_seqs=300)
    )
    unknown = warnings(six, Traffic(), older)
    assert "sequences of 6, as many as it runs by default, may" in unknown
    assert "256" not in unknown


def test_large_batches_leave_cuda_graphs_sooner() -> None:
    serving = Serving("x", max_num_seqs=256)
    assert "128" in warnings(HEAD, Traffic(concurrency=129), serving=serving)
    assert warnings(HEAD, Traffic(concurrency=128), serving=serving) == ""
    assert warnings(HEAD, Traffic(concurrency=200), ON_CPU, serving) == ""


def test_a_request_that_is_too_long_is_said() -> None:
    serving = Serving("x", max_model_len=512)
    assert "600" in warnings(OFF, Traffic(longest=600), serving=serving)
