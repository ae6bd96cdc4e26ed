"""A head that the engine runs is never refused by the plan, nor pruned by `tune`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft import SamplingParams, Speculation, load_engine
from outdraft.backends.backend import Serving
from outdraft.errors import OutdraftError, PairingError
from outdraft.modelspec import HeadSpec, read_head, read_spec
from outdraft.modelspec.head import check_head_fits
from outdraft.plan import Model, find_model, pair, parse_gpu
from outdraft.plan.models import TABLE
from outdraft.plan.sizes import num_parameters
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.candidates import Pruner

LAYERS = 4


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agreement") / "target"
    return tiny_model(folder, "llama", layers=LAYERS)


def made(folder: Path, target: Path, changes: dict[str, Any], **options: Any) -> Path:
    tiny_head(folder, target, fitted=False, **options)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, {}),
        ({}, {"taps": (0, 2, LAYERS)}),  # the last tap is what the final norm gets
        ({}, {"layout": "original", "taps": (1, 2, LAYERS)}),
        (  # SGLang's form: outputs of layers 0, 1 and 3 enter layers 1, 2 and, after the last, 4
            {
                "eagle_aux_hidden_state_layer_ids": None,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, LAYERS - 1]},
            },
            {"layout": "original"},
        ),
        ({}, {"own_embedding": True, "full_vocab": True}),
    ],
)
def test_what_the_engine_runs_can_be_planned(
    tmp_path: Path, target: Path, changes: dict[str, Any], options: dict[str, Any]
) -> None:
    head = made(tmp_path / "head", target, changes, **options)
    speculation = Speculation("eagle", k=2, draft=str(head))
    engine = load_engine(str(target), speculation, kv_cache_bytes=4 << 20)
    engine.add_request([5, 6, 7], SamplingParams(max_tokens=4))
    while engine.has_work:
        engine.step()

    report = pair(find_model(str(target)), find_model(str(head)), 64)
    taps = next(each for each in report.findings if each.name == "tapped_layers")
    assert taps.value == ", ".join(map(str, read_head(head).taps(LAYERS)))
    assert Pruner(Serving(target=str(target)), parse_gpu("l4")).unfit(speculation) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"eagle_aux_hidden_state_layer_ids": [0, 1, LAYERS + 1]},
        {"eagle_aux_hidden_state_layer_ids": [-1, 1, 2]},
        {"target_hidden_size": 128},
    ],
)
def test_what_does_not_fit_is_pruned_with_the_engines_words(
    tmp_path: Path, target: Path, changes: dict[str, Any]
) -> None:
    head = made(tmp_path / "head", target, changes)
    speculation = Speculation("eagle", k=2, draft=str(head))
    with pytest.raises(PairingError) as planned:
        pair(find_model(str(target)), find_model(str(head)), 64)
    assert Pruner(Serving(target=str(target)), parse_gpu("l4")).unfit(speculation) == str(
        planned.value
    )
    with pytest.raises(OutdraftError):
        load_engine(str(target), speculation, kv_cache_bytes=4 << 20)


@given(
    taps=st.none() | st.sets(st.integers(-1, 40), min_size=3, max_size=3),
    hidden=st.sampled_from([576, 64]),
    has_embedding=st.booleans(),
)
def test_plan_and_engine_draw_the_line_at_the_same_heads(
    taps: set[int] | None, hidden: int, has_embedding: bool
) -> None:
    target = TABLE["smollm2-135m"].spec
    head = HeadSpec(
        "llama", 1, hidden, 96, 4, 2, 16, target.vocab_size, 2048,
        target_hidden_size=576, draft_vocab_size=1000, has_embedding=has_embedding,
        layer_ids=None if taps is None else tuple(sorted(taps)),
    )  # fmt: skip

    def refusal(check: Any) -> str | None:
        try:
            check()
        except PairingError as error:
            return str(error)
        return None

    engine = refusal(lambda: check_head_fits(head, target, name="h", target_name="t"))
    plan = refusal(lambda: pair(Model("t", "table", target), Model("h", "folder", head), 64))
    assert plan == engine
    is_within = taps is None or (min(taps) >= 0 and max(taps) <= target.num_layers)
    assert (engine is None) == (is_within and (has_embedding or hidden == 576))


@pytest.mark.parametrize("options", [{}, {"own_embedding": True}, {"full_vocab": True}])
def test_the_formulas_count_the_tensors_that_the_engine_loads(
    tmp_path: Path, target: Path, options: dict[str, Any]
) -> None:
    head = read_head(made(tmp_path / "head", target, {}, **options))
    shapes = {name: shape for name, shape in head.tensor_shapes().items() if name != "d2t"}
    assert num_parameters(head) == sum(math.prod(shape) for shape in shapes.values())


def test_a_model_is_read_the_same_way_for_both(target: Path) -> None:
    spec = read_spec(target)
    assert spec == find_model(str(target)).spec
    assert replace(spec, windows=()) == spec
