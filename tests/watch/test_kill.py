"""A watch in a process of its own, killed with SIGKILL at random moments: when it comes back, it
stands by what it said, and nothing is said twice or never."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from outdraft.observe.reading import to_json
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import BEGIN

LOOK_S = 5.0
_NUM_LOOKS = 720  # an hour

# Looks at what a file holds, from the look on at which the last process was ended.
# It does not wait for the disk: what was written outlives a process that is killed.
CHILD = """
import json, os, sys
from pathlib import Path
os.fsync = lambda file: None
from outdraft.observe.reading import from_json
from outdraft.watch.advice import AdviceRules
from outdraft.watch.watch import Watch, WatchRules
folder, begin = Path(sys.argv[1]), int(sys.argv[2])
looks = (folder / "looks.jsonl").read_text().splitlines()
rules = WatchRules(window_s=600.0, advice=AdviceRules(dwell_s=120.0))
at = json.loads(looks[begin])["at"]
watch = Watch(rules, now=at, events=folder / "events.jsonl", state=folder / "state.json")
for number in range(begin, len(looks)):
    look = json.loads(looks[number])
    print(number, flush=True)
    watch.look({name: from_json(each) for name, each in look["found"].items()}, look["at"])
watch.close(look["at"])
print("end", flush=True)
"""


def write_looks(folder: Path) -> None:
    """Half an hour of nothing; then a collapse, a deployment, and a benefit that turns."""
    servers = {name: PlantedServer(at) for at, name in enumerate("abc")}
    servers["plain"] = PlantedServer(9, speculates=False)
    with (folder / "looks.jsonl").open("w") as file:
        for number in range(_NUM_LOOKS):
            at = BEGIN + LOOK_S * number
            if number == 440:
                servers["a"].rate = 0.1
                servers["b"].speedup = 0.6
            if number == 500:
                servers["c"].version = "2.0"
                servers["c"].restart(at)
            for server in servers.values():
                server.advance(LOOK_S)
            found = {name: to_json(server.reading(at)) for name, server in servers.items()}
            file.write(json.dumps({"at": at, "found": found}) + "\n")


def run(folder: Path, begin: int, kill_at: int | None, rng: random.Random) -> int:
    """The look at which it was killed, or the number of looks."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(begin)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        last = begin
        for line in child.stdout:
            if line.strip() == "end":
                return _NUM_LOOKS
            last = int(line)
            if kill_at is not None and last >= kill_at:
                time.sleep(rng.uniform(0.0, 0.01))
                child.kill()
        assert child.wait() == -9
    return min(last + 1, _NUM_LOOKS - 1)


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def subjects(folder: Path) -> Counter[tuple[object, ...]]:
    """What was said, without figures, which are those of another moment."""
    found: Counter[tuple[object, ...]] = Counter()
    for event in said(folder):
        data = event["data"]
        assert isinstance(data, dict)
        subject = data.get("kind") or data.get("action") or event["text"]
        found[event["kind"], event["replica"], subject] += 1
    return found


def standing(folder: Path) -> tuple[object, ...]:
    state = json.loads((folder / "state.json").read_text())
    alarms = {(each["alarm"]["kind"], each["alarm"]["replica"]) for each in state["alarms"]}
    advice = {name: each["standing"]["action"] for name, each in state["advice"].items()
              if each["standing"]}  # fmt: skip
    return alarms, advice


def check(folder: Path, num_kills: int, seed: int) -> None:
    rng = random.Random(seed)
    calm, killed = folder / "calm", folder / "killed"
    for each in (calm, killed):
        each.mkdir()
    write_looks(calm)
    shutil.copy(calm / "looks.jsonl", killed)
    assert run(calm, 0, None, rng) == _NUM_LOOKS
    expected = subjects(calm)
    assert expected["alarm", "a", "acceptance_collapsed"] == 1
    assert expected["advice", "b", "TURN OFF"] == 1
    assert expected["replica", "c", "version 1.0 → 2.0"] == 1
    begin = 0
    # Most of them where something happens.
    moments = sorted([rng.randrange(_NUM_LOOKS - 20), *rng.choices(range(435, 580), k=num_kills)])
    for moment in moments:
        begin = run(killed, begin, max(moment, begin), rng)
        if begin == _NUM_LOOKS:
            break
    if begin < _NUM_LOOKS:
        assert run(killed, begin, None, rng) == _NUM_LOOKS
    numbers = [event["number"] for event in said(killed)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert subjects(killed) == expected
    assert standing(killed) == standing(calm)


@pytest.mark.slow
def test_a_killed_watch_says_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    check(tmp_path, 3, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_however_often_it_is_killed(tmp_path: Path, seed: int) -> None:
    check(tmp_path, 15, seed)
