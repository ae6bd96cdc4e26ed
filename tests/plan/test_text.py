"""What is printed."""

from __future__ import annotations

import pytest

from outdraft.plan import Plan, PlanSettings, find_model, parse_gpu, plan_memory, text
from outdraft.plan.findings import Check


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_memory(
        find_model("llama-3.1-70b"),
        find_model("llama-3.1-8b"),
        parse_gpu("h100:2"),
        PlanSettings(max_model_len=8192),
        target_quantization="int8",
        suggest=True,
    )


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 KB"), (98_362_432, "98.4 MB"),
     (999_900_000, "1.00 GB"), (141_107_412_992, "141.1 GB"), (-5 * 10**9, "-5.00 GB")],
)  # fmt: skip
def test_sizes(num_bytes: int, shown: str) -> None:
    assert text.size_text(num_bytes) == shown


def test_summary_lines(plan: Plan) -> None:
    target, draft, memory, serving = text.summary_lines(plan)
    assert target == "target   llama-3.1-70b (table): 70.6B parameters, int8, 72.7 GB"
    assert draft.endswith("8.03B parameters, bf16, 16.1 GB, k = 5")
    assert memory == ("memory   2 × h100 of 81,559 MiB (85.5 GB), 171.0 GB in all, 92% of it used")
    assert "256 sequences at most, of 8,192 tokens" in serving


def test_the_table_shows_the_cost(plan: Plan) -> None:
    lines = {line[:22].strip(): line[22:].split() for line in text.room_table(plan).splitlines()}
    without, with_draft = plan.headline.without, plan.headline.with_draft
    assert without is not None
    assert with_draft is not None
    assert lines["KV tokens"] == [f"{without.kv_tokens:,}", f"{with_draft.kv_tokens:,}", "-47%"]
    assert lines["draft weights"] == ["–", "8.03", "GB", "+8.03", "GB"]
    assert "sequences of 8,192" in lines


def test_bars_are_as_long_as_the_memory(plan: Plan) -> None:
    without, with_draft = text.bars(plan, 50)
    for bar in (without, with_draft):
        assert sum(bar.widths.values()) == 50
        assert all(width >= 0 for width in bar.widths.values())
    widths = with_draft.widths
    assert widths["target"] == round(50 * 36.3 / 85.5)
    assert widths["draft"] == 5
    assert without.label == "230,480 KV tokens"


def test_what_does_not_fit_says_so() -> None:
    big = find_model("llama-3.1-70b")
    full = plan_memory(big, None, parse_gpu("h100"), PlanSettings(8192))
    assert text.serving_line(full) == "does not serve: 66.7 GB too little"
    [bar] = text.bars(full, 50)
    assert (bar.label, sum(bar.widths.values())) == ("does not fit", 50)
    tight = plan_memory(
        big, None, parse_gpu("h100:2"), PlanSettings(131_072), target_quantization="fp8"
    )
    assert text.serving_line(tight) == (
        "serves: 1.8 texts of 131,072 tokens at once; the longest text that fits has 131,072 "
        "tokens (as long as the target reads)"
    )
    tighter = plan_memory(
        big, None, parse_gpu("a100-40:2"), PlanSettings(131_072), target_quantization="int4"
    )
    said = str(text.serving_line(tighter))
    assert "not one text of 131,072 tokens fits; the longest text that fits has " in said
    first, *_ = tighter.advice
    assert first.endswith("is the longest that fits")
    shorter = int(first.split()[1])
    assert f"{shorter:,} tokens (the target reads 131,072)" in said
    again = plan_memory(
        big, None, parse_gpu("a100-40:2"), PlanSettings(shorter), target_quantization="int4"
    )
    assert again.headline.serves, "what is advised works"


def test_findings_show_the_limit_where_it_matters() -> None:
    lines = list(
        text.finding_lines(
            [
                Check("family", "llama", "same", "ok"),
                Check("size_ratio", 2.0, "1:8 to 1:12", "warn", "too large"),
                Check("headroom", 0.25, "at least 20%", "ok"),
            ]
        )
    )
    assert lines == [
        "  ok      family: llama",
        "  warn    size ratio: 1:2.0 (wanted: 1:8 to 1:12)",
        "          too large",
        "  ok      headroom: 25.0% (wanted: at least 20%)",
    ]


def test_mixes(plan: Plan) -> None:
    lines = text.mix_table(plan).splitlines()
    assert lines[0].split() == [
        "target", "draft", "weights", "left", "KV", "tokens", "with", "draft", "change", "serves"
    ]  # fmt: skip
    assert len(lines) == 17
    assert lines[1].endswith("no")
    bare = plan_memory(plan.target, None, None, PlanSettings(8192))
    assert text.mix_table(bare).splitlines()[1].split() == [
        "bf16", "141.1", "GB"
    ]  # fmt: skip


def test_suggestions(plan: Plan) -> None:
    assert plan.suggestions is not None
    first, best, *_ = text.suggestion_lines("llama-3.1-70b", plan.suggestions)
    assert first == "drafts for llama-3.1-70b, the likeliest to pay first:"
    assert best.startswith("  llama-3.1-8b  bf16  16.1 GB")
    assert "none in the table" in next(text.suggestion_lines("x", []))
