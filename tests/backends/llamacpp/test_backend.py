"""llama.cpp's flags, under the names of its versions. The real one runs in tests/engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.backends.backend import Backend, Serving, Traffic
from outdraft.backends.checks import preflight
from outdraft.backends.installation import Installation
from outdraft.backends.llamacpp import installation as llamacpp_installation
from outdraft.backends.llamacpp.backend import LlamaCpp
from outdraft.backends.llamacpp.installation import TABLE, gpus_in
from outdraft.backends.lookup import backend_named
from outdraft.errors import BackendError, OptionError
from outdraft.speculation import OFF, Speculation
from outdraft.testing.backend_contract import BackendContract
from outdraft.testing.tiny_models import tiny_gguf

NEWEST = TABLE.installation()
HERE = replace(NEWEST, is_here=True)
NGRAM = Speculation(method="ngram", k=5, prompt_lookup_min=3, prompt_lookup_max=3)
DRAFT = Speculation(method="draft_model", draft="draft.gguf", k=4)
# -md alone turned it on, and n-grams were not there yet.
OLD = Installation(
    version="4000",
    options=frozenset({"-m", "-c", "-np", "-t", "-tb", "-md", "--draft-max", "--draft-min"}),
    is_here=False,
)
# n-gram types and their first names.
MIDDLE = replace(
    OLD,
    options=OLD.options | {"--spec-type", "--spec-ngram-size-n", "--spec-ngram-size-m"},
    choices={"--spec-type": ("none", "ngram-cache", "ngram-simple")},
)


class TestLlamaCppFlags(BackendContract):
    def make_backend(self) -> Backend:
        return LlamaCpp(NEWEST)

    def make_serving(self, folder: Path) -> Serving:
        return Serving(target="target.gguf")


def flags(speculation: Speculation, installation: Installation = NEWEST, **serving: object) -> str:
    launch = LlamaCpp(installation).launch(Serving("t.gguf", **serving), speculation, 1)  # type: ignore[arg-type]
    return " ".join(launch.argv)


def notes(speculation: Speculation, installation: Installation = NEWEST, **serving: object) -> str:
    launch = LlamaCpp(installation).launch(Serving("t.gguf", **serving), speculation, 1)  # type: ignore[arg-type]
    return "; ".join(launch.notes)


def test_a_draft_always_comes_with_its_type() -> None:
    words = flags(DRAFT)
    assert "--spec-type draft-simple --spec-draft-model draft.gguf --spec-draft-n-max 4" in words
    eagle = flags(Speculation(method="eagle", draft="head.gguf", k=4))
    assert "--spec-type draft-eagle3 --spec-draft-model head.gguf" in eagle


def test_a_version_without_a_draft_length_has_no_draft() -> None:
    lacking = replace(NEWEST, options=NEWEST.options - {"--spec-draft-n-max"})
    with pytest.raises(OptionError, match="no method 'draft_model'; valid: off, ngram"):
        flags(DRAFT, lacking)


def test_ngram_sizes() -> None:
    expected = "--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 5"
    assert expected in flags(NGRAM)
    shorter = flags(replace(NGRAM, k=2))
    assert "--spec-ngram-simple-size-n 2" in shorter, "shorter drafts are dropped"
    assert "one length" in notes(NGRAM)


def test_older_versions_get_their_own_names() -> None:
    assert flags(DRAFT, OLD).endswith("-md draft.gguf --draft-max 4")
    assert LlamaCpp(OLD).capabilities().methods == {"off", "draft_model"}
    assert flags(NGRAM, MIDDLE).endswith(
        "--spec-type ngram-simple --spec-ngram-size-n 3 --spec-ngram-size-m 5"
    )
    with pytest.raises(OptionError, match="off, draft_model"):
        flags(NGRAM, OLD)


@pytest.mark.parametrize(
    ("speculation", "old", "new"),
    [
        (DRAFT, ["--draft-max", "8"], "--spec-draft-n-max 8"),
        (DRAFT, ["--draft", "8"], "--spec-draft-n-max 8"),
        (DRAFT, ["--draft-min=2"], "--spec-draft-n-min 2"),
        (NGRAM, ["--spec-ngram-size-n", "4"], "--spec-ngram-simple-size-n 4"),
        (NGRAM, ["--draft-max", "4"], "--spec-ngram-simple-size-m 4"),
        (
            NGRAM,
            ["--spec-type", "ngram-map-k", "--spec-ngram-min-hits", "2"],
            "--spec-ngram-map-k-min-hits 2",
        ),
    ],
)
def test_flags_out_of_articles_are_translated(
    speculation: Speculation, old: list[str], new: str
) -> None:
    assert flags(speculation, extra=tuple(old)).endswith(new)
    assert "is now" in notes(speculation, extra=tuple(old))


def test_flags_that_are_gone_are_left_out() -> None:
    extra = ("--ctx-size-draft", "512", "--spec-replace", "a", "b", "--seed", "3")
    assert flags(DRAFT, extra=extra).endswith("--spec-draft-n-max 4 --seed 3")
    assert "--spec-replace is gone" in notes(DRAFT, extra=extra)
    assert flags(DRAFT, OLD, extra=("--draft-max", "9")).endswith("--draft-max 9"), "it knows it"


def test_context_is_for_all_slots_together() -> None:
    assert "-np 4 -c 2048" in flags(OFF, max_num_seqs=4, max_model_len=512)
    assert "-c 512" in flags(OFF, max_model_len=512)
    shared = flags(OFF, max_num_seqs=4)
    assert "--kv-unified" in shared
    assert "-c" not in shared.split()


def test_several_gpus_and_threads() -> None:
    words = flags(OFF, tensor_parallel_size=2, threads=3, served_name="me")
    assert "--alias me -t 3 -tb 3 --split-mode tensor" in words
    assert "--split-mode row" in flags(OFF, OLD, tensor_parallel_size=2)


def test_rejection_needs_a_version_that_has_it() -> None:
    rejecting = replace(DRAFT, rule="rejection")
    assert flags(rejecting).endswith("--spec-draft-sampling probabilistic")
    with pytest.raises(OptionError, match="coupled"):
        flags(rejecting, OLD)


@pytest.mark.parametrize(
    ("speculation", "serving", "words"),
    [
        (replace(DRAFT, rule="typical"), {}, "coupled, rejection"),
        (replace(DRAFT, quantization="int8"), {}, "quantized .gguf"),
        (replace(DRAFT, schedule=((1, 4, 2),)), {}, "schedule"),
        (replace(DRAFT, draft_tensor_parallel_size=2), {}, "--spec-draft-device"),
        (OFF, {"dtype": "float32"}, "float32"),
        (OFF, {"quantization": "int8"}, "int8"),
        (OFF, {"extra": ("--spec-default",)}, "--spec-default"),
        (OFF, {"extra": ("--spec-type=ngram-mod",)}, "--spec-type"),
    ],
)
def test_what_it_cannot_do_is_refused(
    speculation: Speculation, serving: dict[str, object], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        flags(speculation, **serving)


def test_a_variable_does_not_turn_speculation_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LlamaCpp(NEWEST).launch(Serving("t.gguf"), OFF, 1).env == {}
    monkeypatch.setenv("LLAMA_ARG_SPEC_TYPE", "ngram-mod")
    assert LlamaCpp(NEWEST).launch(Serving("t.gguf"), OFF, 1).env == {"LLAMA_ARG_SPEC_TYPE": "none"}
    assert any("LLAMA_ARG_SPEC_TYPE" in each for each in warnings(OFF))


def warnings(
    speculation: Speculation, *extra: str, threads: int | None = 1, **traffic: object
) -> tuple[str, ...]:
    serving = Serving("t.gguf", threads=threads, max_model_len=512, max_num_seqs=4, extra=extra)
    load = Traffic(**traffic)  # type: ignore[arg-type]
    return tuple(preflight(LlamaCpp(HERE), serving, speculation, load))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (warnings(OFF, "-md", "x.gguf"), "without --spec-type"),
        (warnings(NGRAM, "--spec-type", "ngram-mod"), "across requests"),
        (warnings(NGRAM, fields=frozenset({"logprobs"})), "logprobs"),
        (warnings(NGRAM, fields=frozenset({"speculative.n_max"})), "ignores speculative.n_max"),
        (warnings(OFF, threads=None), "threads"),
        (warnings(OFF, concurrency=9), "9 requests"),
        (warnings(OFF, longest=600), "600 tokens"),
    ],
)
def test_traps_are_warned_of(found: tuple[str, ...], words: str) -> None:
    assert len(found) == 1
    assert words in found[0]


def test_no_warnings_where_nothing_is_wrong() -> None:
    assert warnings(NGRAM, concurrency=4, longest=512) == ()


def test_it_is_asked_for_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text(
        '#!/bin/sh\necho "version: 9 (abc)"; echo "--spec-type none,draft-simple x"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(llamacpp_installation.VARIABLE, str(program))
    backend = backend_named("llamacpp")
    assert backend.installation.version == "9 (abc)"
    assert backend.installation.options == {"--spec-type"}
    tiny_gguf(tmp_path / "a.gguf")
    launch = backend.launch(Serving(str(tmp_path / "a.gguf")), OFF, 1)
    assert launch.argv[:3] == (str(program), "-m", str(tmp_path / "a.gguf"))
    launch = backend.launch(Serving(str(tmp_path)), OFF, 1)  # a folder with one .gguf file
    assert launch.argv[2] == str(tmp_path / "a.gguf")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OptionError, match=r"no \.gguf file"):
        backend.launch(Serving(str(tmp_path / "folder")), OFF, 1)


def test_where_it_is_not_there_is_the_install_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(llamacpp_installation.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(llamacpp_installation, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="pip install xllamacpp"):
        backend_named("llamacpp")
    monkeypatch.setenv(llamacpp_installation.VARIABLE, str(tmp_path / "ghost"))
    with pytest.raises(BackendError, match="ghost"):
        backend_named("llamacpp")
    monkeypatch.delenv(llamacpp_installation.VARIABLE)
    monkeypatch.setattr(llamacpp_installation, "find_spec", lambda name: object())
    assert llamacpp_installation._command()[1].endswith("llamacpp/runner.py")


@pytest.mark.parametrize(
    ("listed", "gpus"),
    [
        ("Available devices:\n  (none)\n", []),
        ("Available devices:\n", []),
        ("Available devices:\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n", []),
        (
            "ggml_cuda_init: found 2 CUDA devices:\n"
            "  Device 0: NVIDIA H200, compute capability 9.0, VMM: yes\n"
            "Available devices:\n  CUDA0: NVIDIA H200 (143167 MiB, 142000 MiB free)\n",
            ["CUDA0"],
        ),
        ("Available devices:\n  Vulkan0: Radeon (8176 MiB, 8000 MiB free)\n", ["Vulkan0"]),
    ],
)
def test_devices_that_it_lists(listed: str, gpus: list[str]) -> None:
    """Where it lists no GPU, it runs on the CPU, and its engines can be side by side."""
    assert gpus_in(listed) == gpus
