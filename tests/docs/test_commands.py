"""Every command of README.md and docs/, typed: with tiny models and fake servers in the place of
those that are named, and shorter loads. What needs a GPU or other machines is parsed and planned.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from outdraft.cli.main import COMMANDS, find_command, main
from outdraft.distill.settings import distill_settings
from outdraft.engine import assemble
from outdraft.tune.run import plan_run
from outdraft.tune.settings import RunSettings
from outdraft.watch.settings import WatchSettings
from tests.docs.world import SMALL, World, ask, serving, world_in
from tests.docs.written import ROOT, Written, in_blocks, in_help, in_sentences
from tests.measure.patient import be_patient

LOAD = ("--requests", "20", "--concurrency", "2", "--max-tokens", "8")
DISTILL = (  # noqa: SIM905
    "--device cpu --threads 1 --room 500 --answer-tokens 16 --evaluate-tokens 12 --shard-texts 12 "
    "--max-answer-tokens 40 --steps 2 --batch-tokens 2000 --held-out-prompts 1 --heads 2 "
    "--kv-heads 1 --evaluate-prompts 1 --hidden 32 --layers 1 --intermediate 32"
).split()
TOLD = tuple[int, str, str]  # exit code, stdout, stderr
Run = Callable[[Sequence[str]], TOLD]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("reader")) as world:
        yield world


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    be_patient(monkeypatch)
    monkeypatch.setattr(assemble, "_CPU_KV_CACHE_BYTES", 16 << 20)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"method": "ngram", "k": 4}'))

    def run(words: Sequence[str]) -> TOLD:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def generate(world: World, words: list[str], run: Run) -> None:
    target = () if "--target" in words else ("--target", str(world.target))
    code, out, err = run([*words, *target, "--max-tokens", "24", *SMALL])
    assert code == 0, err
    assert out.strip()
    if "--json" in words:
        assert json.loads(out)["token_ids"]
    else:
        assert "tokens/s" in err
    if "--compare" in words:
        assert "same text" in err


def plan(world: World, words: list[str], run: Run) -> None:
    code, out, err = run(words)
    assert code == 0, err
    assert "does not serve" not in out, "an example ends well"
    assert "\nserves: " in out
    if "--suggest" in words:
        assert "the likeliest to pay first" in out


def emit(world: World, words: list[str], run: Run) -> None:
    code, out, err = run(words)
    assert code == 0, err
    assert words[words.index("--target") + 1] in out
    assert "ngram" in out


def report(world: World, words: list[str], run: Run) -> None:
    code, out, err = run(words)
    assert code == 0, err
    page = Path(json.loads(out)["report"] if "--json" in words else out.strip())
    assert "</html>" in page.read_text()
    if "--out" in words:
        assert page == Path(words[-1])


def bench(world: World, words: list[str], run: Run) -> None:
    if "--quick" in words:
        code, out, err = run([*words, "--target", str(world.target)])
        assert code == 0, err
        assert "tokens/s" in out
        return
    code, out, err = run([*words, *LOAD])
    assert code == 0, err
    assert "TTFT" in out
    assert "tokens/s" in out
    if "--out" in words:
        saved = json.loads(Path(words[words.index("--out") + 1]).read_text())
        assert len([each for each in saved["records"] if not each["is_warmup"]]) >= 20


def compare(world: World, words: list[str], run: Run) -> None:
    code, out, err = run([*words, "--requests", "40", *LOAD[2:], "--block", "4"])
    assert code == 0, err
    assert "SHIP" in out


def tune(world: World, words: list[str], run: Run) -> None:
    if "--off" in words:
        loads = ("--concurrency", "1", "--max-tokens", "10", "--block", "2", "--budget", "5s")
        code, out, err = run([*words, *loads])
        assert code == 0, err
        assert out.splitlines()[-1].startswith("best: ngram k=4 · 1.")
        return
    if "--engine" not in words:  # our own: everything but the measurement
        words = [*words, "--target", str(world.target)]
        planned = plan_run(RunSettings.from_options(find_command("tune").parse(words[1:])))
        assert planned.search.arms
        assert planned.prompts
        return
    settings = RunSettings.from_options(find_command("tune").parse(words[1:]))
    assert settings.engine == words[words.index("--engine") + 1]


def watch(world: World, words: list[str], run: Run) -> None:
    if "--write-boards" in words:
        assert run(words)[0] == 0
        assert any(Path(words[-1]).iterdir())
        return
    if "--dns" in words or "--prometheus" in words:  # names of other networks
        WatchSettings.from_options(find_command("watch").parse(words[1:]))
        return
    page = ("--listen", "127.0.0.1:0") if "--ui" in words else ()
    code, out, err = run([*words, "--for", "400ms", "--interval", "200ms", *page])
    assert code in (0, 3), err
    if "--json" in words:
        assert json.loads(out)["fleet"]
    if page:
        assert "page at http://" in err
    for flag in ("--state", "--events"):
        if flag in words:
            assert Path(words[words.index(flag) + 1]).is_file()


def distill(world: World, words: list[str], run: Run) -> None:
    assert distill_settings(find_command("distill").parse(words[1:])).device == "cuda"
    out = world.folder / "distilled"
    code, said, err = run([*words, *DISTILL, "--out", str(out)])
    assert code == 0, err
    assert f"the draft is in {out}" in said
    assert (out / "model.safetensors").is_file()


def export(world: World, words: list[str], run: Run) -> None:
    code, _, err = run(words)
    assert code == 0, err
    folder = Path(words[words.index("--out") + 1])
    assert {"config.json", "model.safetensors"} <= {each.name for each in folder.iterdir()}


def serve(world: World, words: list[str], run: Run) -> None:
    with serving(world, words) as url:
        body = {"prompt": "one two one two", "max_tokens": 8}
        assert ask(f"{url}/v1/completions", body)["usage"]["completion_tokens"] == 8


HANDLERS = {
    "generate": generate, "plan": plan, "emit": emit, "report": report, "bench": bench,
    "compare": compare, "tune": tune, "watch": watch, "distill": distill, "export": export,
    "serve": serve,
}  # fmt: skip


def in_order() -> list[Written]:
    """First what writes a folder that others read. What several pages have is typed once."""
    written: dict[tuple[str, ...], Written] = {}
    for each in in_blocks():
        written.setdefault(each.words, each)
    return sorted(written.values(), key=lambda each: "--off" not in each.words)


def marked(written: Written) -> object:
    """A server that starts takes seconds: those whose other flags are served elsewhere wait."""
    marks = [pytest.mark.slow] if "--canary-share" in written.words else []
    return pytest.param(written, marks=marks, id=str(written))


@pytest.mark.parametrize("written", [marked(each) for each in in_order()])
def test_a_command_of_a_block(written: Written, world: World, run: Run) -> None:
    words = world.words(written.words)
    tuned = world.folder / "tune-out" / "results.json"
    if ("--baseline" in words or words[0] == "report") and not tuned.is_file():
        first = in_order()[0]  # it was left out of this run of the tests
        HANDLERS[first.words[0]](world, world.words(first.words), run)
        assert tuned.is_file()
    HANDLERS[words[0]](world, words, run)


def search(world: World, words: list[str], run: Run) -> None:
    """On our own engine, to its end, in a minute."""
    short = "--budget 60s --concurrency 2 --max-tokens 8 --k 2,4 --threads 1".split()  # noqa: SIM905
    methods = () if "--methods" in words else ("--methods", "ngram")
    code, said, err = run([*words, "--target", str(world.target), *short, *methods])
    assert code == 0, err
    assert said.splitlines()[-1].startswith("best: ")
    out = Path(words[words.index("--out") + 1] if "--out" in words else "tune-out")
    assert {"report.html", "outdraft.toml"} <= {each.name for each in out.iterdir()}


@pytest.mark.slow
def test_a_search_on_our_own_engine(world: World, run: Run) -> None:
    """The command of docs/tuning.md."""
    [written] = [each for each in in_blocks() if each.page == "tuning.md"]
    search(world, [*world.words(written.words), "--out", str(world.folder / "searched")], run)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[World]:
    """With nothing of what other pages write."""
    with world_in(tmp_path) as world:
        shutil.rmtree(tmp_path / "my-draft")
        yield world


def walk(
    page: str, reader: World, run: Run, **own: Callable[[World, list[str], Run], None]
) -> None:
    """The commands of a tutorial one after the other, each with what those before have left."""
    steps = [each.words for each in in_blocks() if each.page == f"tutorials/{page}"]
    assert len(steps) > 3
    for words in steps:
        {**HANDLERS, "tune": search, **own}[words[0]](reader, reader.words(words), run)


@pytest.mark.slow
def test_the_walk_of_decide(reader: World, run: Run) -> None:
    def emit_what_won(world: World, words: list[str], run: Run) -> None:
        code, out, err = run(words)
        assert code == 0, err
        assert "services:" in out

    assert "\t@$(BIN)/outdraft tune\n" in (ROOT / "Makefile").read_text()
    search(reader, ["tune"], run)
    walk("decide.md", reader, run, emit=emit_what_won)


@pytest.mark.slow
def test_the_walk_of_draft(reader: World, run: Run) -> None:
    """What is tried, and measured, is the draft that was made."""

    def distill_here(world: World, words: list[str], run: Run) -> None:
        code, said, err = run([*words, *DISTILL])
        assert code == 0, err
        assert "note: in 30m this machine writes about " in err
        assert "the draft is in my-draft" in said

    walk("draft.md", reader, run, distill=distill_here)
    assert "my-draft" in (reader.folder / "draft-out" / "report.html").read_text()


@pytest.mark.slow
def test_the_walk_of_production(reader: World, run: Run) -> None:
    """On a server of ours that is up all the time, with what a search found about it."""
    search(reader, ["tune"], run)
    steps = [each.words for each in in_blocks() if each.page == "tutorials/production.md"]
    [serve_words] = [words for words in steps if words[0] == "serve"]
    with serving(reader, list(serve_words)) as url:
        reader.stand_in("http://127.0.0.1:8000", url)
        ask(f"{url}/v1/completions", {"prompt": "one two one two", "max_tokens": 64})
        walk("production.md", reader, run, serve=lambda *_: None)


def test_every_command_is_shown_somewhere() -> None:
    assert {each.words[0] for each in in_blocks()} == set(COMMANDS) == set(HANDLERS)


@pytest.mark.parametrize("written", in_sentences(), ids=str)
def test_a_command_in_a_sentence_has_flags_that_there_are(written: Written) -> None:
    known = {flag for action in find_command(written.words[0]).parser()._actions
             for flag in action.option_strings}  # fmt: skip
    assert {word for word in written.words if word.startswith("--")} <= known


@pytest.mark.parametrize("written", in_help(), ids=str)
def test_an_example_of_help_is_understood(written: Written, tmp_path: Path) -> None:
    name, *words = written.words
    if "--help" in words:
        return
    if "--config" in words:
        words = [word if not word.endswith(".toml") else str(tmp_path / word) for word in words]
        (tmp_path / "tune.toml").write_text("[tune]\nbudget = '5m'\n")
    args = find_command(name).parse(words)
    assert vars(args)
