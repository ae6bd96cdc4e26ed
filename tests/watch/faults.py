"""What goes wrong on planted days: each fault with the alarm that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from outdraft.watch.alarms import KINDS
from tests.watch.histories import DAY, Course

AT = 480  # the minute in which a fault begins


@dataclass(frozen=True)
class Fault:
    name: str
    do: Callable[[Course], None]
    kind: str  # the alarm that names it
    replicas: tuple[str, ...] = ("r0", "r1", "r2")  # on which it is
    at: int = AT
    beside: tuple[str, ...] = ()  # alarms that are right too

    def course(self, seed: int) -> Course:
        """The fault comes by day: at night there is too little to see for an hour or two."""
        begins = (DAY / 2 - self.at + (-240, -80, 80, 240)[seed % 4]) % DAY
        last = self.at + KINDS[self.kind].delay_s / 60 + 30
        course = Course(begins=begins, num_minutes=int(last))
        self.do(course)
        return course


def _drift(course: Course) -> None:
    hours = np.maximum(np.arange(course.num_minutes) - AT, 0) / 60
    course.chance *= np.exp(-0.06 * hours)


def _collapse(course: Course) -> None:
    course.chance[:, AT:] *= 0.4


def _deployment(course: Course) -> None:
    course.deploy(AT, 1)
    course.chance[1, AT:] *= 0.72


def _slow_deployment(course: Course) -> None:
    course.deploy(AT, 1, "model")
    course.pace[1, AT:] *= 2.0


def _bad_replica(course: Course) -> None:
    course.chance[2, AT:] *= 0.7


def _bad_from_the_start(course: Course) -> None:
    course.chance[2] *= 0.7


def _slow_replica(course: Course) -> None:
    course.pace[0, AT:] *= 1.8


def _no_drafts(course: Course) -> None:
    course.drafts[1, AT:] = 0


def _never_any_draft(course: Course) -> None:
    course.drafts[:] = 0


def _worthless(course: Course) -> None:
    course.chance[:] = 0.05


def _squeeze(course: Course) -> None:
    course.kv[0, AT:] = 0.97


def _tail(course: Course) -> None:
    course.tail[1, AT:] = 0.06


def _came_on(course: Course) -> None:
    course.speculates[:, :AT] = 0
    course.tail[:, AT:] = 0.06


def _long_texts(course: Course) -> None:
    for at in range(AT, course.num_minutes, 25):
        course.long[:, at : at + 4] = 0.9


_LESS = ("acceptance_collapsed", "acceptance_decays", "unlike_fellows", "deployment_step")

FAULTS = (
    Fault("drift", _drift, "acceptance_decays", beside=("acceptance_collapsed",)),
    Fault("collapse", _collapse, "acceptance_collapsed", beside=_LESS),
    Fault("deployment", _deployment, "deployment_step", ("r1",), beside=_LESS),
    Fault("slow deployment", _slow_deployment, "deployment_step", ("r1",), beside=_LESS),
    Fault("bad replica", _bad_replica, "unlike_fellows", ("r2",), beside=_LESS),
    Fault("bad from the start", _bad_from_the_start, "unlike_fellows", ("r2",), 0),
    Fault("slow replica", _slow_replica, "unlike_fellows", ("r0",)),
    Fault("no drafts", _no_drafts, "nothing_proposed", ("r1",), beside=("unlike_fellows",)),
    Fault("never any draft", _never_any_draft, "nothing_proposed", at=0),
    Fault("worthless", _worthless, "drafts_worthless", at=0),
    Fault("squeeze", _squeeze, "kv_squeeze", ("r0",)),
    Fault("tail", _tail, "tail_widened", ("r1",), beside=("unlike_fellows",)),
    Fault("came on", _came_on, "tail_after_coming_on", beside=("tail_widened",)),
    Fault("long texts", _long_texts, "long_texts_collapse",
          beside=("acceptance_collapsed", "acceptance_decays")),
)  # fmt: skip


def do_no_harm(course: Course, seed: int) -> None:
    """What happens on good days: restarts, deployments, another load, a watch that was away."""
    rng = np.random.default_rng(seed)
    at, replica = int(rng.integers(100, 1100)), int(rng.integers(course.num_replicas))
    deeds: tuple[Callable[[], None], ...] = (
        lambda: course.restart(at, replica),
        lambda: course.deploy(at, replica),
        lambda: _other_load(course, at, float(rng.choice([0.3, 2.5]))),
        lambda: _look_away(course, at, int(rng.integers(2, 90))),
    )
    deeds[seed % len(deeds)]()


def _other_load(course: Course, at: int, factor: float) -> None:
    """With texts that are a little harder, as a batch job has them."""
    course.load[:, at : at + 180] *= factor
    course.chance[:, at : at + 180] *= 0.95


def _look_away(course: Course, at: int, minutes: int) -> None:
    course.gone[:, at : at + minutes] = 1
