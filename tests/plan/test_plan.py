"""A whole plan, and the object that scripts read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outdraft.errors import OptionError, PairingError
from outdraft.plan import PlanSettings, find_model, parse_gpu, plan_memory
from outdraft.testing.tiny_models import tiny_model
from tests.plan.test_pairing import head

SHORT = PlanSettings(max_model_len=8192)


def test_every_mix_and_the_chosen_one() -> None:
    plan = plan_memory(
        find_model("llama-3.1-70b"),
        find_model("llama-3.1-8b"),
        parse_gpu("h100:2"),
        SHORT,
        target_quantization="int8",
    )
    names = ("bf16", "fp8", "int8", "int4")
    mixes = [(each.target_quantization, each.draft_quantization) for each in plan.mixes]
    assert mixes == [(ours, theirs) for ours in names for theirs in names]
    assert (plan.headline.target_quantization, plan.headline.draft_quantization) == (
        "int8",
        "bf16",
    )
    assert plan.headline in plan.mixes
    assert plan.shares is not None
    assert plan.shares.draft == pytest.approx(8.03 / 85.5, abs=0.001)
    assert [rule.state for rule in plan.rules] == ["ok"] * 3


RULE_KEYS = {"name", "state", "value", "limit", "advice"}


def test_one_object_for_scripts() -> None:
    plan = plan_memory(find_model("gpt-oss-20b"), None, parse_gpu("h100"), SHORT, suggest=True)
    told = json.loads(json.dumps(plan.to_json()))
    assert told["target"]["parameters"] == 20_914_757_184
    assert told["target"]["bytes"].keys() == {"bf16", "fp8", "int8", "int4", "mxfp4"}
    by_part = told["target"]["bytes_by_part"]["bf16"]
    assert sum(by_part.values()) == told["target"]["bytes"]["bf16"]
    assert told["headline"]["target_quantization"] == "mxfp4", "as published"
    assert told["headline"]["without"]["kv_tokens"] > 0
    assert (told["draft"], told["pairing"], told["suggestions"]) == (None, None, [])
    assert told["serves"] is True
    assert len(told["mixes"]) == 4
    assert "see 128 tokens back" in told["notes"][0]
    assert told["assumptions"]
    assert all(each.keys() == RULE_KEYS for each in told["rules"])


def test_an_eagle_head_costs_little(tmp_path: Path) -> None:
    target = find_model(str(tiny_model(tmp_path / "target", "llama", layers=8)))
    plan = plan_memory(target, head(tmp_path / "head"), parse_gpu("l4"), PlanSettings(512))
    lost = plan.headline.lost_share()
    assert lost is not None
    assert 0 < lost < 0.2
    assert plan.to_json()["draft"]["architecture"]["head"]["kind"] == "eagle3"


def test_what_cannot_be_planned(tmp_path: Path) -> None:
    llama = find_model("llama-3.1-8b")
    with pytest.raises(OptionError, match=r"--max-model-len 200000 is more than .* \(131072\)"):
        plan_memory(llama, None, None, PlanSettings(200_000))
    with pytest.raises(PairingError, match="cannot draft for"):
        plan_memory(llama, find_model("qwen3-0.6b"), None, SHORT)
    with pytest.raises(PairingError, match="is a draft head"):
        plan_memory(head(tmp_path / "head"), None, None, PlanSettings(512))
    with pytest.raises(OptionError, match="unknown quantization 'int3'"):
        plan_memory(llama, None, None, SHORT, target_quantization="int3")
    with pytest.raises(OptionError, match="do not divide over 3 devices"):
        plan_memory(llama, None, parse_gpu("h100:3"), SHORT)


def test_neither_torch_nor_a_tokenizer_library(tmp_path: Path) -> None:
    """Also where tokenizers are compared."""
    folder = str(tiny_model(tmp_path / "model", "llama"))
    code = (
        "import sys; from outdraft.cli.main import main; "
        f"main(['plan', '--target', {folder!r}, '--draft', {folder!r}, '--json']); "
        "heavy = {'torch', 'transformers', 'tokenizers', 'scipy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
