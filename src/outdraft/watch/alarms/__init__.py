"""Silent failures of speculation, found in what servers did. Pure; the words are in alarms.toml."""

from outdraft.watch.alarms.detect import find_alarms
from outdraft.watch.alarms.past import Past, Rows
from outdraft.watch.alarms.standing import Standings, stand
from outdraft.watch.alarms.words import KINDS, AlarmKind

__all__ = [
    "KINDS",
    "AlarmKind",
    "Past",
    "Rows",
    "Standings",
    "find_alarms",
    "stand",
]
