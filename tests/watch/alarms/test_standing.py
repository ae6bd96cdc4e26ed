from __future__ import annotations

from outdraft.watch.alarms import KINDS, stand
from outdraft.watch.alarms.standing import NOTHING_STANDS

KIND = KINDS["kv_squeeze"]


def test_an_alarm_is_raised_once_and_ends_after_a_while_without_evidence() -> None:
    first, later = KIND.alarm("a", 100.0, "97 %"), KIND.alarm("a", 160.0, "98 %")
    standing, raised, ended = stand(NOTHING_STANDS, [first], 100.0, ["a"])
    assert (raised, ended) == ((first,), ())
    standing, raised, ended = stand(standing, [later], 160.0, ["a"])
    assert (raised, ended) == ((), ())
    (alarm,) = standing.of("a")
    assert (alarm.since, alarm.evidence) == (100.0, "98 %")
    standing, raised, ended = stand(standing, [], 160.0 + KIND.ends_s - 1, ["a"])
    assert standing.of("a")
    standing, raised, ended = stand(standing, [], 160.0 + KIND.ends_s, ["a"])
    assert ended == (alarm,)
    assert not standing.alarms


def test_alarms_of_a_replica_that_is_gone_end() -> None:
    standing, _, _ = stand(NOTHING_STANDS, [KIND.alarm("a", 1.0, "x")], 1.0, ["a", "b"])
    standing, _, ended = stand(standing, [], 2.0, ["b"])
    assert [alarm.replica for alarm in ended] == ["a"]
    assert not standing.alarms
