from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.errors import OptionError, OutdraftError
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.drafts import drafts_by_method


def test_each_draft_goes_to_its_method(tmp_path: Path) -> None:
    model, head = (str(make(tmp_path)) for make in (_model, _head))
    assert drafts_by_method(model, (head, model)) == {"draft_model": (model,), "eagle": (head,)}


def test_those_that_ship_unless_others_are_named(tmp_path: Path) -> None:
    shipped = drafts_by_method("smollm2-135m", ())
    assert shipped == {
        "draft_model": ("smollm2-135m-draft",),
        "eagle": ("smollm2-135m-eagle",),
    }
    own = str(_model(tmp_path))
    assert drafts_by_method("smollm2-135m", (own,)) == {"draft_model": (own,), "eagle": ()}
    assert drafts_by_method(own, ()) == {"draft_model": (), "eagle": ()}


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
