"""Sessions of several turns."""

from __future__ import annotations

from collections import Counter

from outdraft.workload.plan import choose_balanced, plan_requests
from outdraft.workload.sessions import choose_turns, join_turns
from outdraft.workload.sets import built_in

PROMPTS = built_in()


def test_a_session_is_of_one_category_and_no_prompt_comes_twice() -> None:
    chosen = choose_turns(PROMPTS, 120, 3, seed=1)
    sessions = [chosen[at : at + 3] for at in range(0, 120, 3)]
    assert all(len({each.category for each in session}) == 1 for session in sessions)
    assert len({each.id for each in chosen}) == 120
    counts = Counter(session[0].category for session in sessions)
    assert set(counts.values()) == {5}, "categories keep their shares"


def test_prompts_that_run_out_come_again() -> None:
    chosen = choose_turns(PROMPTS[:4], 12, 3, seed=0)
    assert Counter(each.id for each in chosen) == {each.id: 3 for each in PROMPTS[:4]}


def test_a_single_turn_is_what_it_was() -> None:
    assert choose_turns(PROMPTS, 50, 1, seed=3) == choose_balanced(PROMPTS, 50, 3)


def test_turns_are_joined() -> None:
    plan = plan_requests(PROMPTS[:6], mix=((0.0, 1.0),), seed=0)
    sessions = join_turns(plan, 3)
    assert [(each.prompt, *(turn.prompt for turn in each.then)) for each in sessions] == [
        tuple(each.prompt for each in plan[:3]),
        tuple(each.prompt for each in plan[3:]),
    ]
    assert join_turns(plan, 1) == plan
