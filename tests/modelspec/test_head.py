"""Heads are read from both layouts, and what cannot be used is named in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from outdraft.errors import CorruptFileError, ModelError, OutdraftError, PairingError
from outdraft.modelspec import HeadSpec, RopeScaling, read_head, read_modelspec
from outdraft.modelspec.head import check_head_fits, head_config, is_head
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("spec") / "target", "llama")


def head(tmp_path: Path, target: Path, **options: Any) -> Path:
    return tiny_head(tmp_path / "head", target, fitted=False, **options)


def rewrite(folder: Path, change: Change) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def test_both_layouts_say_the_same(target: Path, tmp_path: Path) -> None:
    one = read_head(tiny_head(tmp_path / "a", target, fitted=False))
    other = read_head(tiny_head(tmp_path / "b", target, fitted=False, layout="original"))
    assert one == other
    assert (one.hidden_size, one.target_hidden_size, one.vocab_size) == (64, 64, 384)
    assert (one.draft_vocab_size, one.layer_ids, one.has_embedding) == (288, (0, 1, 2), False)
    assert "midlayer.hidden_norm.weight" in load_file(tmp_path / "b" / "model.safetensors")


def test_what_was_written_is_read_again(target: Path, tmp_path: Path) -> None:
    """With what the tiny ones do not have: rope scaling, another hidden size, other taps."""
    folder = head(tmp_path, target, own_embedding=True, norm_before_residual=True)
    spec = read_head(folder)
    assert spec.has_embedding
    assert spec.norm_before_residual
    scaled = replace(
        spec, rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, 64), layer_ids=(1, 2, 5)
    )
    config = head_config(scaled, target_name="t", k=3)
    (folder / "config.json").write_text(json.dumps(config))
    assert read_head(folder) == scaled


def test_what_config_leaves_out(target: Path, tmp_path: Path) -> None:
    folder = head(tmp_path, target)
    rewrite(folder, lambda c: [c.pop("norm_before_residual"), c.pop("target_hidden_size")])
    assert read_head(folder).norm_before_residual  # as vLLM reads the speculators form
    rewrite(folder, lambda c: c.pop("eagle_aux_hidden_state_layer_ids"))
    assert read_head(folder).taps(30) == (2, 15, 27)
    folder = tiny_head(tmp_path / "flat", target, fitted=False, layout="original")
    rewrite(folder, lambda c: c.pop("norm_before_residual"))
    assert not read_head(folder).norm_before_residual


def test_layers_counted_by_their_outputs(target: Path, tmp_path: Path) -> None:
    folder = head(tmp_path, target, layout="original")
    inner = {"eagle_aux_hidden_state_layer_ids": [1, 46, 90], "use_aux_hidden_state": True}
    rewrite(folder, lambda c: c.update(eagle_config=inner, eagle_aux_hidden_state_layer_ids=None))
    assert read_head(folder).taps(94) == (2, 47, 91)


def drop(folder: Path, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")


def one_line(error: pytest.ExceptionInfo[OutdraftError], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "name", ["fc.weight", "lm_head.weight", "d2t", "layers.0.mlp.up_proj.weight"]
)
def test_a_missing_tensor_is_named(name: str, target: Path, tmp_path: Path) -> None:
    folder = head(tmp_path, target)
    drop(folder, name)
    with pytest.raises(CorruptFileError) as error:
        read_head(folder)
    one_line(error, repr(name), "missing")


def test_only_a_full_vocabulary_needs_no_mapping(target: Path, tmp_path: Path) -> None:
    assert "d2t" not in read_head(head(tmp_path, target, full_vocab=True)).tensor_shapes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(draft_vocab_size=400), ["400", "384"]),
        (lambda c: c.update(draft_vocab_size=100), ["lm_head.weight", "(288, 64)", "(100, 64)"]),
        (lambda c: c["transformer_layer_config"].pop("rms_norm_eps"), ["rms_norm_eps"]),
        (lambda c: c["transformer_layer_config"].update(hidden_size="?"), ["wrong kind"]),
        (lambda c: c["transformer_layer_config"].update(num_hidden_layers=2), ["layers 2"]),
        (lambda c: c["transformer_layer_config"].update(model_type="qwen3"), ["'qwen3'"]),
        (lambda c: c.update(norm_before_fc=True), ["norm_before_fc"]),
        (lambda c: c.update(speculators_model_type="peagle"), ["parallel drafting", "P-EAGLE"]),
        (
            lambda c: c.update(speculators_model_type="eagle", architectures=["EagleSpeculator"]),
            ["unsupported kind 'eagle'"],
        ),
        (lambda c: c["transformer_layer_config"].update(hidden_act="gelu"), ["activation 'gelu'"]),
        (lambda c: c["transformer_layer_config"].update(attention_bias=True), ["attention_bias"]),
        (lambda c: c.update(eagle_aux_hidden_state_layer_ids=[1, 2]), ["3 different", "[1, 2]"]),
        (
            lambda c: [
                c.pop("speculators_model_type"),
                c.update(architectures=["LlamaForCausalLM"]),
            ],
            ["LlamaForCausalLM", "draft_model"],
        ),
    ],
)
def test_what_cannot_be_read(
    change: Change, words: list[str], target: Path, tmp_path: Path
) -> None:
    folder = head(tmp_path, target)
    rewrite(folder, change)
    with pytest.raises(ModelError) as error:
        read_head(folder)
    one_line(error, *words)


@pytest.mark.parametrize("architectures", [5, None, {}, "LlamaForCausalLM", [7]])
def test_an_odd_config_is_no_head(architectures: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": architectures}))
    assert not is_head(tmp_path)
    with pytest.raises(ModelError, match="not an EAGLE-3 head"):
        read_head(tmp_path)


def test_no_folder_of_a_head(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config.json"):
        read_head(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target_hidden_size": 128}, ["128", "64"]),
        ({"vocab_size": 500}, ["500", "384"]),
        ({"hidden_size": 32}, ["no embedding of its own", "32"]),
        ({"layer_ids": (0, 1, 3)}, ["0, 1, 3", "2"]),
        ({"layer_ids": None}, ["2, 1, -1"]),  # the usual three, of a model of two layers
    ],
)
def test_what_does_not_fit(
    changes: dict[str, Any], words: list[str], target: Path, tmp_path: Path
) -> None:
    spec: HeadSpec = replace(read_head(head(tmp_path, target)), **changes)
    with pytest.raises(PairingError) as error:
        check_head_fits(spec, read_modelspec(target), name="h", target_name="t")
    one_line(error, "head h does not fit target t", *words)


def test_another_hidden_size_fits_with_an_embedding_of_its_own(
    target: Path, tmp_path: Path
) -> None:
    spec = replace(read_head(head(tmp_path, target)), hidden_size=32, has_embedding=True)
    check_head_fits(spec, read_modelspec(target), name="h", target_name="t")


def test_reading_needs_no_torch() -> None:
    code = "import sys, outdraft.modelspec.head; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
