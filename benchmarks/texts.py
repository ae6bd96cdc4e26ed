"""How often arms are blamed for their texts: those that write what off does, and others.

    python benchmarks/texts.py [--runs 20000]

Every answer is the target's own text or, with the chance of a near-tie, another one; the chance is
the same for all prompts, or varies between them (a few prompts have most of the near-ties). A run
is what `compare` does: four looks at up to 240 pairs, and a floor of the first 16 requests, sent
again, which share the first arm's answers with the pairs. A tenth of the near-ties come within the
beginning of the text. "Blamed" is DON'T SHIP at any look; "doubted" is a SHIP that is withheld.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from outdraft.decide.texts import Agreement, TextFinding, judge_texts
from outdraft.measure.evidence import FLOOR_TEXTS

LOOKS = (60, 120, 180, 240)
EARLY, LATE = 0, 200  # characters
SHARE_EARLY = 0.1


def agreement(same: np.ndarray, early: np.ndarray) -> Agreement:
    places = np.where(early[~same], EARLY, LATE)
    return Agreement(len(same), int(same.sum()), tuple(places.tolist()))


def findings(
    draw: np.random.Generator, chances: np.ndarray, junk: float, *, with_floor: bool
) -> Iterator[TextFinding]:
    """At each look. `junk`: share of the arm's answers that have nothing to do with the prompt."""
    off, arm, again = (draw.random(chances.shape) >= chances for _ in range(3))
    is_junk = draw.random(chances.shape) < junk
    early = draw.random(chances.shape) < SHARE_EARLY
    pairs = off & arm & ~is_junk
    first = slice(FLOOR_TEXTS)
    floor = agreement((off & again)[first], early[first]) if with_floor else None
    for num in LOOKS:
        yield judge_texts(agreement(pairs[:num], (early | is_junk)[:num]), floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000)
    num_runs = parser.parse_args().runs
    draw = np.random.default_rng(0)
    print("near-ties  varying  junk  floor   blamed   doubted at the end")
    cases = [(p, varies, 0.0, True) for p in (0.02, 0.05, 0.1, 0.2, 0.4) for varies in (0, 1)]
    cases += [(p, 0, 0.0, False) for p in (0.02, 0.1, 0.2)]
    cases += [(0.05, 0, junk, True) for junk in (0.3, 0.5, 0.7, 1.0)]
    cases += [(p, 0, 1.0, True) for p in (0.2, 0.4)]
    for p, varies, junk, with_floor in cases:
        num_blamed = num_doubted = 0
        for _ in range(num_runs):
            shape = LOOKS[-1]
            chances = draw.beta(p / 2, (1 - p) / 2, shape) if varies else np.full(shape, p)
            found = list(findings(draw, chances, junk, with_floor=with_floor))
            num_blamed += TextFinding.OTHER in found
            num_doubted += found[-1] is TextFinding.DOUBTFUL
        words = ("yes" if each else "no" for each in (varies, with_floor))
        columns = "{:9.2f}  {:>7}  {:4.1f}  {:>5}  {:7.4f}  {:7.4f}".format
        print(columns(p, next(words), junk, next(words), num_blamed / num_runs,
                      num_doubted / num_runs))  # fmt: skip


if __name__ == "__main__":
    main()
