"""What goes into a configuration, whatever its form."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.backends.backend import Serving
from outdraft.emit import engine_config
from outdraft.errors import OptionError
from outdraft.speculation import OFF, Speculation
from tests.emit.reading import value_of

NGRAM = Speculation("ngram", k=4)


def test_vllm_over_hosts_is_stages_through_ray() -> None:
    serving = Serving("org/t", tensor_parallel_size=8)
    config = engine_config("vllm", NGRAM, serving, version="0.32.0", hosts=2)
    assert value_of(config, "--tensor-parallel-size") == "8"
    assert value_of(config, "--pipeline-parallel-size") == "2"
    assert value_of(config, "--distributed-executor-backend") == "ray"
    assert (config.gpus, config.hosts) == (8, 2)


def test_sglang_over_hosts_is_one_group() -> None:
    serving = Serving("org/t", tensor_parallel_size=8)
    config = engine_config("sglang", NGRAM, serving, version="0.5.23", hosts=2)
    assert value_of(config, "--tp-size") == "16"
    assert value_of(config, "--nnodes") == "2"
    assert value_of(config, "--pp-size") is None


@pytest.mark.parametrize("engine", ["llamacpp", "outdraft"])
def test_others_have_one_host(engine: str) -> None:
    with pytest.raises(OptionError, match="vllm or sglang"):
        engine_config(engine, NGRAM, Serving("/m/t.gguf"), hosts=2)


def test_llamacpp_wants_a_gguf_file() -> None:
    with pytest.raises(OptionError, match=r"\.gguf"):
        engine_config("llamacpp", NGRAM, Serving("org/target"), version="any")


def test_our_server_lets_its_requests_finish() -> None:
    config = engine_config("outdraft", NGRAM, Serving("smollm2-135m"))
    assert config.program == ("outdraft", "serve")
    assert value_of(config, "--drain-timeout") is None


def test_a_folder_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("target").mkdir()
    config = engine_config("vllm", NGRAM, Serving("target"), version="0.32.0")
    assert config.argv[2] == str(tmp_path / "target")


def test_known_disappointments_are_notes() -> None:
    scheduled = Speculation("ngram", k=4, schedule=((1, 4, 4), (5, 64, 0)))
    config = engine_config("vllm", scheduled, Serving("org/t"), version="0.32.0")
    assert any("not off" in note for note in config.notes)


@pytest.mark.parametrize(("version", "known"), [("0.99.0", True), ("0.6.3", False)])
def test_versions_beyond_the_table(version: str, known: bool) -> None:
    if known:
        config = engine_config("vllm", OFF, Serving("org/t"), version=version)
        assert any("newer" in note for note in config.notes)
    else:
        with pytest.raises(OptionError, match=r"0\.22\.0"):
            engine_config("vllm", OFF, Serving("org/t"), version=version)


def test_bad_numbers_and_names_are_refused() -> None:
    with pytest.raises(OptionError, match="hosts"):
        engine_config("vllm", OFF, Serving("org/t"), hosts=0)
    with pytest.raises(OptionError, match="tensor_parallel_size"):
        engine_config("vllm", OFF, Serving("org/t", tensor_parallel_size=0))
    with pytest.raises(OptionError, match="sglang"):
        engine_config("sglangg", OFF, Serving("org/t"))
