"""Flags from articles of 2024."""

from __future__ import annotations

import json

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.vllm.backend import Vllm
from outdraft.backends.vllm.installation import TABLE
from outdraft.backends.vllm.old_flags import merged, take_out, translate_values
from outdraft.errors import OptionError
from outdraft.speculation import OFF, Speculation


def test_old_flags_are_taken_out_with_a_note_each() -> None:
    given, rest, notes = take_out(
        ["--speculative-model", "org/d", "--enforce-eager", "--num_speculative_tokens=3",
         "--use-v2-block-manager", "--speculative-max-model-len", "512", "--seed", "7"]
    )  # fmt: skip
    assert given == {"--speculative-model": "org/d", "--num-speculative-tokens": 3}
    assert [flag.words for flag in rest] == [("--enforce-eager",), ("--seed", "7")]
    assert len(notes) == 4


def test_a_limit_by_batch_size_becomes_a_schedule() -> None:
    schedule = translate_values({"--speculative-disable-by-batch-size": 8})[
        "num_speculative_tokens_per_batch_size"
    ]
    assert [entry[2] > 0 for entry in schedule] == [True, False]
    assert schedule[1][0] == 8
    with pytest.raises(OptionError, match="at least 2"):
        translate_values({"--speculative-disable-by-batch-size": 1})


def test_ngram_was_once_spelled_as_a_model() -> None:
    assert translate_values({"--speculative-model": "[ngram]"})["method"] == "ngram"


def test_old_samplers_are_our_rules() -> None:
    flag = "--spec-decoding-acceptance-method"
    assert translate_values({flag: "typical_acceptance_sampler"})["rule"] == "typical"
    with pytest.raises(OptionError, match="rejection_sampler"):
        translate_values({flag: "rejection"})


def test_defaults_give_way_and_what_was_said_does_not() -> None:
    given = {"--num-speculative-tokens": 3}
    assert merged(Speculation("ngram"), given).k == 3
    assert merged(Speculation("ngram", k=3), given).k == 3
    with pytest.raises(OptionError, match="keep one"):
        merged(Speculation("ngram", k=4), given)


def test_a_baseline_does_not_speculate_by_an_old_flag() -> None:
    with pytest.raises(OptionError, match="off") as refused:
        merged(OFF, {"--speculative-model": "org/d", "--num-speculative-tokens": 3})
    assert '"method": "draft_model"' in str(refused.value)


def test_a_launch_speaks_todays_language() -> None:
    extra = ("--ngram-prompt-lookup-max", "3", "--enforce-eager")
    made = Vllm(TABLE.installation()).launch(Serving("x", extra=extra), Speculation("ngram"), 1)
    config = json.loads(made.argv[made.argv.index("--speculative-config") + 1])
    assert config["prompt_lookup_max"] == 3
    assert made.argv[-1] == "--enforce-eager"
    assert any("--ngram-prompt-lookup-max is now" in note for note in made.notes)


def test_a_value_that_is_no_number_is_said() -> None:
    with pytest.raises(OptionError, match="number"):
        take_out(["--num-speculative-tokens", "many"])
    with pytest.raises(OptionError, match="needs a value"):
        take_out(["--num-speculative-tokens"])
