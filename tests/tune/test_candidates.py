from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.errors import OptionError, OutdraftError
from outdraft.plan.devices import parse_gpu
from outdraft.speculation import OFF, Speculation
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.arm import name_of
from outdraft.tune.candidates import (
    Pruner,
    Space,
    drafts_by_method,
    enumerate_arms,
    head_devices,
    mtp_layers,
    pruned_ks,
    spread_ks,
)


def test_draft_lengths_that_are_not_tried_are_told() -> None:
    ks = tuple(range(2, 9))
    tried = spread_ks(ks, 4)
    assert tried == (2, 4, 6, 8)
    (left,) = pruned_ks(ks, tried)
    assert left.name == "k=3, 5, 7"
    assert "only 2, 4, 6, 8 are tried" in left.reason
    assert pruned_ks(tried, spread_ks(tried, 4)) == []


def test_a_head_is_tried_on_one_device_and_on_all() -> None:
    drafts = {"eagle": ("head",), "draft_model": ("small",)}
    devices = head_devices(is_supported=True, target_devices=4)
    space = Space(("ngram", "eagle", "draft_model"), (3, 5), drafts, head_devices=devices)
    arms, pruned = enumerate_arms(space, lambda proposer: None)
    assert [name_of(arm) for arm in arms] == [
        "ngram k=3", "ngram k=5",
        "eagle head k=3 tp=1", "eagle head k=5 tp=1", "eagle head k=3 tp=4", "eagle head k=5 tp=4",
        "draft_model small k=3", "draft_model small k=5",
    ]  # fmt: skip
    assert pruned == []


@pytest.mark.parametrize(("is_supported", "count"), [(False, 4), (True, 1)])
def test_no_choice_of_devices(is_supported: bool, count: int) -> None:
    assert head_devices(is_supported=is_supported, target_devices=count) == (None,)


def test_what_cannot_run_is_pruned_with_the_reason() -> None:
    space = Space(("ngram", "eagle"), (3,), {}, rules=("coupled", "typical"))
    arms, pruned = enumerate_arms(space, lambda each: "no" if each.rule == "typical" else None)
    assert [name_of(arm) for arm in arms] == ["ngram k=3"]
    assert {each.name: each.reason for each in pruned} == {
        "eagle": "no draft for it; name one with --draft",
        "ngram typical": "no",
    }


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("eagle", "no head among the drafts (small); name one with --draft"),
        ("draft_model", "no model among the drafts (small); name one with --draft"),
    ],
)
def test_a_draft_of_the_other_kind_is_named(method: str, said: str) -> None:
    other = "draft_model" if method == "eagle" else "eagle"
    _, [pruned] = enumerate_arms(Space((method,), (3,), {other: ("small",)}), lambda each: None)
    assert (pruned.name, pruned.reason) == (method, said)


def test_each_draft_goes_to_its_method(tmp_path: Path) -> None:
    model, head = (str(make(tmp_path)) for make in (_model, _head))
    heads = tmp_path / "medusa"
    heads.mkdir()
    (heads / "config.json").write_text('{"model_type": "medusa"}')
    assert drafts_by_method(model, (head, model, str(heads))) == {
        "draft_model": (model,),
        "eagle": (head,),
        "medusa": (str(heads),),
    }


def test_those_that_ship_unless_others_are_named(tmp_path: Path) -> None:
    shipped = drafts_by_method("smollm2-135m", ())
    assert shipped == {
        "draft_model": ("smollm2-135m-draft",),
        "eagle": ("smollm2-135m-eagle",),
        "medusa": (),
    }
    own = str(_model(tmp_path))
    none = {"draft_model": (), "eagle": (), "medusa": ()}
    assert drafts_by_method("smollm2-135m", (own,)) == {**none, "draft_model": (own,)}
    assert drafts_by_method(own, ()) == none


def test_what_is_named_twice_or_not_there(tmp_path: Path) -> None:
    own = str(_model(tmp_path))
    with pytest.raises(OptionError, match="is given twice"):
        drafts_by_method("smollm2-135m", (own, own))
    with pytest.raises(OutdraftError, match="none"):
        drafts_by_method("smollm2-135m", (str(tmp_path / "none.gguf"),))


def _model(folder: Path) -> Path:
    return tiny_model(folder / "model", "llama")


def _head(folder: Path) -> Path:
    return tiny_head(folder / "head", _model(folder))


# ---------------------------------------------------------------- what fits

SMALL = Speculation("draft_model", k=5, draft="llama-3.2-1b")
NGRAM = Speculation("ngram", k=5)
LARGE = Speculation("draft_model", k=5, draft="llama-3.1-70b")
SERVING = Serving(target="llama-3.1-8b", max_model_len=8192, max_num_seqs=8)


def test_what_fits_is_tried() -> None:
    check = Pruner(SERVING, parse_gpu("h100"))
    assert check.unfit(SMALL) is None
    plan = check.plan(SMALL)
    assert plan is not None
    assert plan.shares is not None
    assert 0 < plan.shares.draft < plan.shares.target < 0.5
    memory = check.memory(SMALL)
    assert memory is not None
    assert memory.target > memory.draft > 0
    assert memory.target + memory.draft + memory.kv + memory.free == memory.total == 81_559 << 20


def test_what_does_not_fit_is_not() -> None:
    assert "it does not fit" in (Pruner(SERVING, parse_gpu("h100")).unfit(LARGE) or "")


def test_room_for_less_than_one_text() -> None:
    long = Serving(target="llama-3.1-8b", max_model_len=131072, max_num_seqs=1)
    reason = Pruner(long, parse_gpu("a10")).unfit(SMALL) or ""
    assert "less than one text of full length; --max-model-len " in reason
    fitting = int(reason.split("--max-model-len ")[1].split()[0])
    assert Pruner(replace(long, max_model_len=fitting), parse_gpu("a10")).unfit(SMALL) is None


def test_without_a_draft_or_a_device_nothing_is_said() -> None:
    assert Pruner(SERVING, parse_gpu("h100")).unfit(Speculation("ngram", k=5)) is None
    check = Pruner(SERVING, None)
    assert check.unfit(LARGE) is None
    plan = check.plan(LARGE)
    assert plan is not None
    assert plan.shares is None
    memory = check.memory(OFF)
    assert memory is not None
    assert (memory.draft, memory.total) == (0, 0)
    assert "--gpu" in memory.note


def test_models_that_nobody_knows_are_left_to_the_engine() -> None:
    check = Pruner(Serving(target="someone/something"), "h100")
    assert check.unfit(SMALL) is None
    assert (check.memory(SMALL), check.plan(SMALL)) == (None, None)


def test_layers_of_the_target_are_planned_where_it_has_some(tmp_path: Path) -> None:
    mtp = Speculation("mtp", k=1)
    served = Serving(target="deepseek-v3", max_model_len=8192)
    eight, four = (Pruner(served, parse_gpu(each)) for each in ("h200:8", "h200:4"))
    assert eight.unfit(mtp) is None
    memory = eight.memory(mtp)
    assert memory is not None
    assert memory.draft == pytest.approx(13.3e9, rel=0.01), "the layer, its matrices whole"
    assert "it does not fit" in (four.unfit(mtp) or "")
    target = str(_model(tmp_path))
    assert mtp_layers(target) == 0
    reason = Pruner(Serving(target=target), None).unfit(mtp)
    assert (
        reason == f"{target} has no layers for multi-token prediction: its config.json names none"
    )
    assert mtp_layers("smollm2-135m") is None, "a .gguf file has no config.json"


def test_the_pair(tmp_path: Path) -> None:
    target = str(tiny_model(tmp_path / "target", "llama", layers=4))
    draft = str(tiny_model(tmp_path / "draft", "llama"))
    check = Pruner(Serving(target=target), None)
    plan, without = map(check.plan, (Speculation("draft_model", k=5, draft=draft), NGRAM))
    assert plan is not None
    assert plan.pairing is not None
    assert plan.pairing.same_tokenizer is True
    assert plan.pairing.size_ratio is not None
    assert plan.pairing.size_ratio > 1
    assert without is not None
    assert without.pairing is None


def test_a_head_of_another_target_is_not_tried(tmp_path: Path) -> None:
    target = str(tiny_model(tmp_path / "target", "llama"))
    head = Speculation("eagle", k=5, draft="smollm2-135m-eagle")
    reason = Pruner(Serving(target=target), None).unfit(head) or ""
    assert "it reads hidden states of 576 numbers, the target's have 64" in reason
