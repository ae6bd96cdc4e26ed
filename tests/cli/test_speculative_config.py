"""`--speculative-config` as vLLM takes it, and the flags that came before it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outdraft.cli.main import find_command, main
from outdraft.cli.speculative_config import speculation_in_any_form
from outdraft.errors import OptionError
from outdraft.speculation import OFF, Speculation


def understood(*flags: str) -> tuple[Speculation, list[str]]:
    """What `outdraft serve` makes of these flags, and the lines it says about them."""
    told: list[str] = []
    return speculation_in_any_form(find_command("serve").parse(flags), told.append), told


def from_json(**settings: Any) -> Speculation:
    speculation, told = understood("--speculative-config", json.dumps(settings))
    assert told == [], "vLLM's own form needs no advice"
    return speculation


def refused(*flags: str) -> str:
    with pytest.raises(OptionError) as caught:
        understood(*flags)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestJson:
    def test_a_draft_model(self) -> None:
        assert from_json(
            method="draft_model",
            model="some/draft",
            num_speculative_tokens=7,
            quantization="int8",
        ) == Speculation("draft_model", k=7, draft="some/draft", quantization="int8")

    def test_a_model_alone_is_a_draft_model(self) -> None:
        assert from_json(model="some/draft", num_speculative_tokens=3) == Speculation(
            "draft_model", k=3, draft="some/draft"
        )

    def test_methods_of_others(self) -> None:
        for words in (("--method", "mtp"), ("--speculative-config", '{"method": "deepseek_mtp"}')):
            assert "engine has no method 'mtp'" in refused(*words)
        assert "use vLLM or SGLang, e.g." in refused("--method", "mtp")
        assert "use vLLM, e.g." in refused("--method", "medusa")

    @pytest.mark.parametrize(
        ("method", "ours", "draft"),
        [
            ("eagle3", "eagle", "smollm2-135m-eagle"),
            ("eagle", "eagle", "smollm2-135m-eagle"),
            ("draft_model", "draft_model", "smollm2-135m-draft"),
        ],
    )
    def test_a_method_alone_takes_the_draft_that_ships(
        self, method: str, ours: str, draft: str
    ) -> None:
        expected = Speculation(ours, k=4, draft=draft)
        assert from_json(method=method, num_speculative_tokens=4) == expected
        flags = ("--method", ours, "--k", "4")
        assert understood(*flags)[0] == expected
        assert "none ships for org/x" in refused(*flags, "--target", "org/x")
        config = json.dumps({"method": method})
        assert "none ships for org/x" in refused(
            "--speculative-config", config, "--target", "org/x"
        )

    @pytest.mark.parametrize(("name", "method"), [("eagle", "eagle"), ("draft", "draft_model")])
    def test_a_draft_alone_says_its_method(self, name: str, method: str) -> None:
        draft = f"smollm2-135m-{name}"
        assert from_json(model=draft) == Speculation(method, draft=draft)
        assert understood("--draft", draft)[0] == Speculation(method, draft=draft)

    def test_ngram(self) -> None:
        assert from_json(
            method="ngram", num_speculative_tokens=4, prompt_lookup_min=2, prompt_lookup_max=6
        ) == Speculation("ngram", k=4, prompt_lookup_min=2, prompt_lookup_max=6)

    @pytest.mark.parametrize("name", ["ngram", "[ngram]"])
    def test_ngram_spelled_as_a_model(self, name: str) -> None:
        assert from_json(model=name, num_speculative_tokens=4) == Speculation("ngram", k=4)

    def test_another_length_by_batch_size(self) -> None:
        speculation = from_json(
            method="suffix",
            num_speculative_tokens=8,
            num_speculative_tokens_per_batch_size=[[1, 4, 6], [5, 8, 2], [9, 64, 0]],
        )
        assert speculation.schedule == ((1, 4, 6), (5, 8, 2), (9, 64, 0))
        assert [speculation.k_at(running) for running in (1, 4, 5, 8, 9)] == [6, 6, 2, 2, 0]

    def test_null_is_as_if_it_were_not_there(self) -> None:
        assert from_json(method="ngram", model=None, quantization=None) == Speculation("ngram")
        assert from_json(method=None) == OFF
        assert from_json() == OFF

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{"method": "ngram", "num_spec_tokens": 3}', ["'num_spec_tokens'", "valid:"]),
            ('{"method": "ngram", "disable_padded_drafter_batch": true}', ["disable_padded"]),
            ('{"method": "medusa", "model": "d"}', ["'medusa'", "off, ngram, suffix, draft_model"]),
            ('{"method": "draft_model", "model": ""}', ["needs a draft"]),
            ('{"num_speculative_tokens": 3}', ["no method", "ngram"]),
            ('{"method": "ngram", "num_speculative_tokens": 0}', ["k must be", "got 0"]),
            ('{"method": "ngram", "num_speculative_tokens": "3"}', ["whole number", "'3'"]),
            ('{"method": "ngram", "num_speculative_tokens": true}', ["whole number", "True"]),
            ('{"method": "ngram", "prompt_lookup_min": 9, "prompt_lookup_max": 3}', ["9 and 3"]),
            ('{"method": ["ngram"]}', ["['ngram']"]),
            ('{"model": 5}', ["draft", "got 5"]),
            ('{"model": "d", "quantization": "fp8"}', ["'fp8'", "none, int8, int4"]),
            ('{"method": "ngram", "k": 2, "num_speculative_tokens": 3}', ["both given"]),
            (
                '{"method": "ngram", "num_speculative_tokens_per_batch_size": [[2, 4, 1]]}',
                ["starts at 1", "got 2"],
            ),
            ("{'method': 'ngram'}", ["is not JSON", "{'method': 'ngram'}"]),
            ("ngram", ["is not JSON", "'ngram'"]),
            ("", ["is not JSON"]),
            ('["ngram"]', ["a JSON object", '["ngram"]']),
            ("null", ["a JSON object"]),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, text: str, said: list[str]) -> None:
        message = refused("--speculative-config", text)
        for part in said:
            assert part in message


# Every flag of old with a value, what it is called now, and the one setting that it changes.
OLD = [
    ("--speculative-model", "some/draft", "model", Speculation("draft_model", draft="some/draft")),
    ("--speculative-model", "[ngram]", "model", Speculation("ngram")),
    ("--num-speculative-tokens", "7", "num_speculative_tokens", Speculation("ngram", k=7)),
    (
        "--spec-decoding-acceptance-method",
        "rejection_sampler",
        "rule",
        Speculation("ngram", rule="rejection"),
    ),
    (
        "--spec-decoding-acceptance-method",
        "typical_acceptance_sampler",
        "rule",
        Speculation("ngram", rule="typical"),
    ),
    (
        "--typical-acceptance-sampler-posterior-threshold",
        "0.2",
        "posterior_threshold",
        Speculation("ngram", posterior_threshold=0.2),
    ),
    (
        "--typical-acceptance-sampler-posterior-alpha",
        "0.4",
        "posterior_alpha",
        Speculation("ngram", posterior_alpha=0.4),
    ),
    (
        "--speculative-model-quantization",
        "int4",
        "quantization",
        Speculation("ngram", quantization="int4"),
    ),
    (
        "--ngram-prompt-lookup-max",
        "9",
        "prompt_lookup_max",
        Speculation("ngram", prompt_lookup_max=9),
    ),
    (
        "--ngram-prompt-lookup-min",
        "2",
        "prompt_lookup_min",
        Speculation("ngram", prompt_lookup_min=2),
    ),
]


class TestOldFlags:
    @pytest.mark.parametrize(("flag", "value", "key", "expected"), OLD)
    def test_each_is_understood_and_told_its_new_name(
        self, flag: str, value: str, key: str, expected: Speculation
    ) -> None:
        method = [] if key == "model" else ["--speculative-config", '{"method": "ngram"}']
        speculation, told = understood(*method, flag, value)
        assert speculation == expected
        [line] = told
        assert f"{flag} is now {key} in --speculative-config" in line
        assert "\n" not in line

    def test_off_from_a_batch_size_on(self) -> None:
        speculation, told = understood(
            "--speculative-model", "[ngram]", "--num-speculative-tokens", "8",
            "--speculative-disable-by-batch-size", "4",
        )  # fmt: skip
        assert [speculation.k_at(running) for running in (1, 3, 4, 500)] == [8, 8, 0, 0]
        assert len(told) == 3
        assert "is now num_speculative_tokens_per_batch_size" in told[2]

    def test_off_from_a_batch_size_on_with_the_length_in_the_json(self) -> None:
        speculation, _ = understood(
            "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 8}',
            "--speculative-disable-by-batch-size", "2",
        )  # fmt: skip
        assert [speculation.k_at(running) for running in (1, 2)] == [8, 0]

    def test_a_whole_command_line_of_old(self) -> None:
        speculation, told = understood(
            "--speculative-model", "[ngram]", "--num-speculative-tokens", "5",
            "--ngram-prompt-lookup-max", "4", "--ngram-prompt-lookup-min", "2",
        )  # fmt: skip
        assert speculation == Speculation("ngram", k=5, prompt_lookup_min=2, prompt_lookup_max=4)
        assert len(told) == 4

    def test_the_advice_goes_to_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        # An empty host ends the command before anything is loaded.
        assert main(["serve", "--speculative-model", "[ngram]", "--host", ""]) == 2
        caught = capsys.readouterr()
        assert caught.out == ""
        advice, refusal = caught.err.splitlines()
        assert "--speculative-model is now model" in advice
        assert "--host" in refusal

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("--spec-decoding-acceptance-method", "typical"), "typical_acceptance_sampler"),
            (("--speculative-disable-by-batch-size", "1"), "at least 2, got 1"),
            (("--num-speculative-tokens", "five"), "'five'"),
            (("--num-speculative-tokens", "5"), "no method"),
            (
                ("--speculative-model", "d", "--typical-acceptance-sampler-posterior-alpha", "2"),
                "posterior_alpha",
            ),
        ],
    )
    def test_what_they_never_took_is_refused(self, flags: tuple[str, ...], said: str) -> None:
        assert said in refused(*flags)


class TestConflicts:
    def test_the_json_and_our_own_flags(self) -> None:
        message = refused("--speculative-config", '{"method": "ngram"}', "--k", "3")
        assert "--speculative-config and --k" in message

    def test_old_flags_and_our_own(self) -> None:
        message = refused("--speculative-model", "d", "--method", "ngram")
        assert "--method and the older flags" in message

    def test_a_setting_in_the_json_and_among_the_old_flags(self) -> None:
        text = '{"method": "ngram", "num_speculative_tokens": 3}'
        message = refused("--speculative-config", text, "--num-speculative-tokens", "4")
        assert "num_speculative_tokens" in message
        assert "keep one" in message

    def test_the_same_setting_under_another_name(self) -> None:
        text = '{"method": "ngram", "k": 3}'
        assert "keep one" in refused("--speculative-config", text, "--num-speculative-tokens", "4")

    def test_our_own_flags_alone_are_taken_as_they_are(self) -> None:
        assert understood("--method", "ngram", "--k", "3") == (Speculation("ngram", k=3), [])
        assert understood("--method", "off") == (OFF, [])

    def test_nothing_said_is_what_suits_the_machine(self) -> None:
        assert understood() == (Speculation("auto", k=16), [])
        assert understood("--device", "cuda") == (OFF, []), "planning takes too long beside it"
        assert understood("--rule", "rejection")[0].method == "off", "its texts would depend on k"
