from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.model_names import model_name
from outdraft.backends.vllm_config import vllm_model
from outdraft.errors import OptionError


def test_names_of_the_catalog_become_what_an_engine_finds(tmp_path: Path) -> None:
    notes: list[str] = []
    assert model_name("smollm2-135m", notes) == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert len(notes) == 1
    head = Path(model_name("smollm2-135m-eagle", notes))
    assert (head / "config.json").is_file()
    assert Path(model_name("smollm2-135m-draft", notes)).is_file()
    assert model_name(str(tmp_path), notes) == str(tmp_path)
    assert model_name("org/name", notes) == "org/name"


def test_vllm_takes_no_gguf_under_any_name() -> None:
    for name in ("x.gguf", "smollm2-135m-draft"):
        with pytest.raises(OptionError, match="vLLM does not serve GGUF files"):
            vllm_model(name, [])
