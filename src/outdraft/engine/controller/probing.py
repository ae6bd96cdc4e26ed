"""Which sequences without drafts are tried again, for how much."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from outdraft.engine.controller.allocation import Floats, Prices


def choose_probes(
    due: Seq[tuple[int, bool, int]],
    money: float,
    verification: Floats,
    num_drafted: int,
    prices: Prices,
    catch_up: float,
    is_drafting: bool,
) -> tuple[list[int], float]:
    """Of those that are due, in order, as many as there is money for, and what they cost.

    due: (place, whether it is drafted and not looked up, tokens that the draft has not read).
    verification: seconds by draft tokens, of which there are `num_drafted` already; is_drafting:
    whether the draft runs in this round anyway.
    """
    taken: list[int] = []
    spent = 0.0
    for place, is_drafted, behind in due:
        at = num_drafted + len(taken)
        if at + 1 >= len(verification):
            break
        seconds = max(float(verification[at + 1] - verification[at]), 0.0)
        if is_drafted:
            seconds += prices.per_token + catch_up * behind
            if not is_drafting:
                seconds += prices.overhead + prices.per_depth
        if spent + seconds > money:
            break
        spent += seconds
        is_drafting = is_drafting or is_drafted
        taken.append(place)
    return taken, spent
