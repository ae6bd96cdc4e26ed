"""What `outdraft generate` does with an engine: stream a text in colours, time it against off.

The text alone goes to stdout; what is said about it goes to stderr.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from rich.console import Console
from rich.text import Text

from outdraft.engine.assemble import load_engine as load_engine
from outdraft.engine.engine import Engine
from outdraft.engine.outputs import Generation, Update
from outdraft.engine.sequence import SamplingParams
from outdraft.engine.tokenizer import TextStream
from outdraft.errors import OptionError
from outdraft.speculation import WITH_DRAFT, Speculation
from outdraft.stats.ratios import MIN_BLOCKS, Throughput, throughput_ratio
from outdraft.text_table import align_columns

# Blue and orange can be told apart by colour-blind readers; bold marks the target's own tokens
# where there is no colour.
_ACCEPTED = "deep_sky_blue1"
_OWN = "bold orange1"


def encode_prompt(engine: Engine, prompt: str, *, raw: bool) -> list[int]:
    if raw or engine.tokenizer.chat_template is None:
        return engine.tokenizer.encode(prompt)
    return engine.tokenizer.apply_chat([{"role": "user", "content": prompt}])


def warm_up(engine: Engine, tokens: list[int]) -> None:
    """The first steps of a process are slow; no run that is timed should include them."""
    engine.generate([tokens], SamplingParams(max_tokens=8, ignore_eos=True))
    engine.forget()


def compare_with_off(
    engine: Engine,
    tokens: list[int],
    params: SamplingParams,
    shown: Generation,
    num_runs: int,
    on_run: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Decoding speed with speculation relative to off, run in turns. Few pairs have no interval."""
    params = replace(params, seed=shown.seed)  # the same text on both sides
    pairs: list[Throughput] = []
    is_same = True
    on_run(0, 2 * num_runs)
    for number in range(num_runs):
        speeds = []
        for k in (None, 0):
            engine.forget()  # what an earlier run wrote must not help a later one
            [generation] = engine.generate([tokens], params, k=k)
            if generation.tokens_per_s is None:
                raise OptionError("the text has a single token: there is nothing to compare")
            speeds.append(generation.tokens_per_s)
            is_same = is_same and generation.tokens == shown.tokens
            on_run(2 * number + len(speeds), 2 * num_runs)
        pairs.append(Throughput(baseline=speeds[1], candidate=speeds[0]))
    ratios = [pair.candidate / pair.baseline for pair in pairs]
    ratio = throughput_ratio(pairs)
    return {
        "runs": num_runs,
        "speedup": ratio.estimate,
        "interval": None if ratio.low is None else [ratio.low, ratio.high],
        "lowest": min(ratios),
        "highest": max(ratios),
        "same_text": is_same,
    }


def show_generation(
    engine: Engine, tokens: list[int], params: SamplingParams, colour: str
) -> tuple[Generation, list[Update]]:
    """Streams the text, each token in the colour of its origin. Returns it, and its rounds."""
    console = _make_console(colour)
    stream = TextStream(engine.tokenizer, after=tokens)
    pending: list[tuple[str, str]] = []
    rounds: list[Update] = []
    generation: Generation | None = None
    for event in engine.stream(tokens, params):
        if isinstance(event, Generation):
            generation = event
            continue
        rounds.append(event)
        for place, token in enumerate(event.tokens):
            style = _ACCEPTED if place < event.num_accepted else _OWN
            pending.append((stream.feed([token]), style))
        if event.finish_reason is not None:
            pending.append((stream.finish(), _OWN))
        # The engine decides how much may be shown: a stop string may still cut off the rest.
        _show_up_to(console, pending, len(event.text))
    console.print()
    assert generation is not None
    return generation, rounds


def read_generation(
    engine: Engine, tokens: list[int], params: SamplingParams
) -> tuple[Generation, list[Update]]:
    """The same without showing anything."""
    events = list(engine.stream(tokens, params))
    [generation] = [each for each in events if isinstance(each, Generation)]
    return generation, [each for each in events if isinstance(each, Update)]


def explained(round_: Update) -> dict[str, Any]:
    """Who drafted in a round, and why."""
    return {
        "proposer": round_.proposer,
        "drafted": round_.num_drafted,
        "accepted": round_.num_accepted,
        "tokens": len(round_.tokens),
        "why": str(round_.why) or None,
    }


def show_rounds(rounds: list[Update], colour: str) -> None:
    """One line for each round; the first token comes with the prompt."""
    rows = [
        [str(number), each.proposer or "no draft", f"{each.num_accepted} of {each.num_drafted}",
         str(len(each.tokens)), str(each.why)]
        for number, each in enumerate(rounds[1:], start=1)
    ]  # fmt: skip
    table = align_columns([("round", "proposer", "accepted", "tokens", "why"), *rows])
    _make_console(colour, stderr=True).print(Text(table), soft_wrap=True)


def show_summary(
    generation: Generation, speculation: Speculation, comparison: dict[str, Any] | None, colour: str
) -> None:
    parts = [f"{len(generation.tokens)} tokens"]
    if generation.tokens_per_s is not None:
        parts.append(f"{generation.tokens_per_s:.1f} tokens/s")
    acceptance = generation.acceptance
    if speculation.is_off:
        parts.append("speculation off")
    else:
        draft = speculation.draft if speculation.method in WITH_DRAFT else None
        named = f" {PurePath(draft).name}" if draft else ""
        parts.append(f"{speculation.method}{named} k={speculation.k}")
        rounds = acceptance.num_rounds
        parts.append(f"{rounds} round{'' if rounds == 1 else 's'}")
        if acceptance.rate is None:
            parts.append("nothing was proposed")
        else:
            parts.append(f"acceptance rate {acceptance.rate:.2f}")
            parts.append(f"acceptance length {acceptance.length:.2f}")
    if generation.is_lossy:
        parts.append("lossy (typical rule)")
    if comparison is not None:
        parts.append(_speedup_words(comparison))
        if speculation.rule == "coupled":  # the others do not promise the same text
            parts.append("same text" if comparison["same_text"] else "TEXT DIFFERS")
    console = _make_console(colour, stderr=True)
    if acceptance.num_drafts and console.is_terminal:
        legend = Text("accepted drafts", _ACCEPTED)
        console.print(Text.assemble(legend, " / ", ("the target's own", _OWN)))
    console.print(Text(" · ".join(parts), "dim"), soft_wrap=True)


def _speedup_words(comparison: dict[str, Any]) -> str:
    speedup, num_runs = f"{comparison['speedup']:.2f}x off", comparison["runs"]
    if comparison["interval"] is None:
        return f"{speedup}, n={num_runs}: too few for an interval (--runs {MIN_BLOCKS} gives one)"
    low, high = comparison["interval"]
    return f"{speedup} [{low:.2f}, {high:.2f}], 95 % interval, n={num_runs}"


def _make_console(colour: str, *, stderr: bool = False) -> Console:
    if colour == "always":
        return Console(stderr=stderr, force_terminal=True, color_system="256", highlight=False)
    return Console(stderr=stderr, no_color=True if colour == "never" else None, highlight=False)


def _show_up_to(console: Console, pending: list[tuple[str, str]], count: int) -> None:
    """Shows the first `count` characters of what is pending."""
    while count > 0 and pending:
        text, style = pending.pop(0)
        _show(console, text[:count], style)
        if len(text) > count:
            pending.insert(0, (text[count:], style))
        count -= len(text)
    console.file.flush()


def _show(console: Console, text: str, style: str) -> None:
    if not console.is_terminal:
        console.file.write(text)  # a pipe or a file gets the text unchanged
        return
    # rich turns tabs into spaces, so they are written here; it rightly drops control characters.
    for index, part in enumerate(text.split("\t")):
        if index:
            console.file.write("\t")
        console.print(Text(part, style), end="", soft_wrap=True)
