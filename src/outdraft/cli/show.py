"""What `outdraft generate` draws on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from outdraft.speculation import Speculation

if TYPE_CHECKING:
    from outdraft.engine.engine import Engine
    from outdraft.engine.outputs import Generation
    from outdraft.engine.sequence import SamplingParams

# Blue and orange stay apart for colour-blind eyes, bold sets the target's apart without colour.
ACCEPTED = "deep_sky_blue1"
OWN = "bold orange1"


@contextmanager
def loading() -> Iterator[Callable[[int, int], None]]:
    """A bar for the layers being loaded, with the time left; gone when done."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("loading layers", total=None)

    def on_layer(done: int, total: int) -> None:
        bar.start()  # not before: a download may be drawing a bar of its own
        bar.update(task, completed=done, total=total)

    try:
        yield on_layer
    finally:
        bar.stop()


def make_console(colour: str) -> Console:
    if colour == "always":
        return Console(force_terminal=True, color_system="256", highlight=False)
    return Console(no_color=True if colour == "never" else None, highlight=False)


def show_generation(
    engine: Engine, tokens: list[int], params: SamplingParams, colour: str
) -> Generation:
    """Streams the text; each piece in the colour of whoever wrote its token."""
    from outdraft.engine.outputs import Generation
    from outdraft.engine.tokenizer import TextStream

    console = make_console(colour)
    stream = TextStream(engine.tokenizer, after=tokens)
    pending: list[tuple[str, str]] = []
    generation: Generation | None = None
    for event in engine.stream(tokens, params):
        if isinstance(event, Generation):
            generation = event
            continue
        for place, token in enumerate(event.tokens):
            style = ACCEPTED if place < event.num_accepted else OWN
            pending.append((stream.feed([token]), style))
        if event.finish_reason is not None:
            pending.append((stream.finish(), OWN))
        # The engine decides how much may be shown: a stop string may yet cut the rest off.
        _show_up_to(console, pending, len(event.text))
    console.print()
    assert generation is not None
    return generation


def _show_up_to(console: Console, pending: list[tuple[str, str]], count: int) -> None:
    while count > 0 and pending:
        text, style = pending.pop(0)
        _show(console, text[:count], style)
        if len(text) > count:
            pending.insert(0, (text[count:], style))
        count -= len(text)
    console.file.flush()


def _show(console: Console, text: str, style: str) -> None:
    if not console.is_terminal:
        console.file.write(text)  # a pipe or a file gets the text as it is
        return
    # rich would make tabs spaces; bells and the like it keeps from the terminal, as it should.
    for index, part in enumerate(text.split("\t")):
        if index:
            console.file.write("\t")
        console.print(Text(part, style), end="", soft_wrap=True)


def show_summary(
    generation: Generation,
    speculation: Speculation,
    comparison: dict[str, Any] | None,
    colour: str,
) -> None:
    parts = [f"{len(generation.tokens)} tokens"]
    if generation.tokens_per_s is not None:
        parts.append(f"{generation.tokens_per_s:.1f} tokens/s")
    acceptance = generation.acceptance
    if speculation.is_off:
        parts.append("speculation off")
    else:
        parts.append(f"{speculation.method} k={speculation.k}")
        parts.append(f"{acceptance.num_rounds} rounds")
        if acceptance.rate is None:
            parts.append("nothing was proposed")
        else:
            parts.append(f"acceptance rate {acceptance.rate:.2f}")
            parts.append(f"acceptance length {acceptance.length:.2f}")
    if generation.is_lossy:
        parts.append("lossy (typical rule)")
    if comparison is not None:
        parts.append(
            f"{comparison['speedup']:.2f}x off "
            f"[{comparison['lowest']:.2f}, {comparison['highest']:.2f}] n={comparison['runs']}"
        )
        if speculation.rule == "coupled":  # the others do not promise the same text
            parts.append("same text" if comparison["same_text"] else "TEXT DIFFERS")
    console = make_console(colour)
    legend = Text()
    if acceptance.num_drafts:
        legend.append("accepted drafts", ACCEPTED).append(" / ").append("the target's own", OWN)
        console.print(legend)
    console.print(Text(" · ".join(parts), "dim"), soft_wrap=True)
