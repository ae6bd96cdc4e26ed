"""Plans of methods whose weights are in the target, in heads of their own, or nowhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import OptionError, PairingError
from outdraft.modelspec import ModelSpec, MtpSpec
from outdraft.modelspec.mtp import mtp_spec
from outdraft.plan import Model, Plan, PlanSettings, find_model, parse_gpu, plan_memory, text
from outdraft.plan.models import TABLE, mtp_draft
from outdraft.plan.sizes import num_parameters, total_bytes

DEEPSEEK, LLAMA = TABLE["deepseek-v3"], TABLE["llama-3.1-8b"]
SHORT = PlanSettings(8192, k=1)
HEADS = {"model_type": "medusa", "hidden_size": 4096, "vocab_size": 128_256, "num_heads": 4}


def medusa(folder: Path, **changes: Any) -> Model:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**HEADS, **changes}))
    return find_model(str(folder))


def room_of(plan: Plan) -> dict[str, int]:
    assert plan.room is not None
    return dict(plan.room.parts)


# ---------------------------------------------------------------- multi-token prediction


def test_as_many_parameters_as_the_files_hold() -> None:
    """DeepSeek-V3 has 684,489,845,504 on the hub, of which the model itself is 671 billion; its
    one layer is there with copies of the embedding and of the output."""
    spec = DEEPSEEK.spec
    assert isinstance(spec, ModelSpec)
    layer = num_parameters(mtp_spec(spec))
    copies = 2 * spec.vocab_size * spec.hidden_size
    assert num_parameters(spec) + layer + copies == 684_489_845_504


def test_the_layer_and_its_cache_are_counted() -> None:
    plan = plan_memory(DEEPSEEK, None, parse_gpu("h200:8"), SHORT, method="mtp")
    assert plan.method == "mtp"
    assert plan.draft is not None
    assert (plan.draft.name, plan.headline.draft_quantization) == (
        "deepseek-v3's MTP layer",
        "fp8",
    )
    without, with_layer = plan.headline.without, plan.headline.with_draft
    assert without is not None
    assert with_layer is not None
    assert with_layer.kv_bytes_per_token - without.kv_bytes_per_token == 2 * (512 + 64)
    added = with_layer.parts["draft_weights"]
    assert added == total_bytes(mtp_draft(DEEPSEEK).spec, "fp8", 8)
    assert added > total_bytes(mtp_draft(DEEPSEEK).spec, "fp8") / 8, "the matrix in front is whole"
    mixes = [(each.target_quantization, each.draft_quantization) for each in plan.mixes]
    assert mixes == [(each, each) for each in ("bf16", "fp8", "int8", "int4")], (
        "taken as the target"
    )
    assert plan.pairing is not None
    assert [each.name for each in plan.pairing.findings] == ["mtp_layers"]
    assert plan.to_json()["draft"]["parameters"] == num_parameters(plan.draft.spec)


def test_advice_quantizes_both() -> None:
    plan = plan_memory(
        DEEPSEEK, None, parse_gpu("h200:8"), SHORT, method="mtp", target_quantization="bf16"
    )
    assert "--target-quantization fp8 fits" in plan.advice
    assert not any("--draft-quantization" in each for each in plan.advice)


def test_a_target_without_such_layers() -> None:
    with pytest.raises(
        OptionError, match=r"llama-3\.1-8b has no layers for multi-token prediction"
    ):
        plan_memory(LLAMA, None, None, SHORT, method="mtp")


def test_files_that_hold_the_layer_too() -> None:
    """Their bytes are shared out: the target alone is no larger for it."""
    spec = DEEPSEEK.spec
    held = replace(DEEPSEEK, file_bytes=671 * 10**9)
    layer = mtp_draft(held)
    assert isinstance(layer.spec, MtpSpec)
    assert layer.file_bytes == pytest.approx(
        671e9 * num_parameters(layer.spec) / num_parameters(spec), rel=0.01
    )


# ---------------------------------------------------------------- Medusa


def test_medusa_heads_have_matrices_and_no_cache(tmp_path: Path) -> None:
    heads = medusa(tmp_path / "heads")
    assert num_parameters(heads.spec) == 4 * (4096 * 4096 + 128_256 * 4096)
    plan = plan_memory(LLAMA, heads, parse_gpu("h100"), replace(SHORT, k=4))
    assert plan.method == "medusa"
    without, with_heads = plan.headline.without, plan.headline.with_draft
    assert without is not None
    assert with_heads is not None
    assert with_heads.kv_bytes_per_token == without.kv_bytes_per_token
    assert room_of(plan)["draft_weights"] == 2 * num_parameters(heads.spec)
    assert plan.to_json()["draft"]["architecture"]["head"]["num_guesses"] == 4
    assert plan.pairing is not None
    assert plan.pairing.findings[0].value == "4 tokens in a round at most"
    shared = medusa(tmp_path / "shared", original_lm_head=True, medusa_fc_bias=True)
    assert num_parameters(shared.spec) == 4 * (4096 * 4096 + 4096) + 128_256 * 4096
    spread = plan_memory(LLAMA, heads, parse_gpu("h100:4"), replace(SHORT, k=4))
    assert room_of(spread)["draft_weights"] < room_of(plan)["draft_weights"]


def test_medusa_heads_of_another_target(tmp_path: Path) -> None:
    with pytest.raises(PairingError, match=r"do not fit target .*: they have a hidden size of 64"):
        plan_memory(LLAMA, medusa(tmp_path / "a", hidden_size=64), None, SHORT)
    with pytest.raises(PairingError, match="they have a vocabulary of 300, the target's is 128256"):
        plan_memory(LLAMA, medusa(tmp_path / "b", vocab_size=300), None, SHORT)
    with pytest.raises(OptionError, match=r"--k 5 is more than the 4 tokens that .* guesses"):
        plan_memory(LLAMA, medusa(tmp_path / "c"), None, replace(SHORT, k=5))
    with pytest.raises(PairingError, match="is a draft head, not a target"):
        plan_memory(medusa(tmp_path / "d"), None, None, SHORT)


# ---------------------------------------------------------------- without weights, and mistakes


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_what_is_looked_up_costs_rows_alone(method: str) -> None:
    plan = plan_memory(LLAMA, None, parse_gpu("l4"), PlanSettings(8192, k=4), method=method)
    without, with_it = plan.headline.without, plan.headline.with_draft
    assert without is not None
    assert with_it is not None
    assert without.parts.keys() == with_it.parts.keys()
    assert without.parts["activations"] < with_it.parts["activations"]
    assert with_it.kv_bytes_per_token == without.kv_bytes_per_token
    assert f"with {method}" in text.room_table(plan).splitlines()[0]
    assert f"with {method}" in text.mix_table(plan).splitlines()[0]
    assert [bar.title for bar in text.bars(plan, 50)] == ["without", f"with {method}"]


def test_methods_and_drafts_that_do_not_go_together(tmp_path: Path) -> None:
    small = TABLE["llama-3.2-1b"]
    for method, said in (
        ("ngram", "method ngram has no draft, got llama-3.2-1b"),
        ("off", "method off has no draft"),
        ("eagle", "llama-3.2-1b is for method draft_model, not eagle"),
    ):
        with pytest.raises(OptionError, match=said):
            plan_memory(LLAMA, small, None, SHORT, method=method)
    with pytest.raises(OptionError, match="method medusa needs a draft"):
        plan_memory(LLAMA, None, None, SHORT, method="medusa")
    assert plan_memory(LLAMA, small, None, SHORT, method="draft_model").method == "draft_model"
    assert plan_memory(LLAMA, None, None, SHORT).method == "off"
