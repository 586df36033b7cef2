# SPDX-License-Identifier: Apache-2.0
"""The checker, by histories that are right and histories that are not; and against trying every order."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from chaos.dev.lines import Asked, Granted, Line, Trouble, Yielded
from chaos.linearizability import Kind, Lock, Operation, check, of_jobs
from chaos.marks import Mark
from chaos.timeline import draw

ACQUIRE, YIELD, LOSE = Kind.ACQUIRE, Kind.YIELD, Kind.LOSE


def op(client: str, kind: Kind, token: int, begin: int, end: int | None) -> Operation:
    return Operation(client, kind, token, begin, end)


GOOD = {
    "nothing": [],
    "one after the other": [
        op("a", ACQUIRE, 1, 0, 10),
        op("a", YIELD, 1, 20, 30),
        op("b", ACQUIRE, 2, 5, 40),
        op("b", YIELD, 2, 50, 60),
    ],
    "granted before the yield's answer came": [
        op("a", ACQUIRE, 1, 0, 10),
        op("a", YIELD, 1, 20, 90),
        op("b", ACQUIRE, 2, 5, 40),
        op("b", YIELD, 2, 50, 60),
        op("c", ACQUIRE, 3, 0, 80),
    ],
    "a yield whose answer never came": [
        op("a", ACQUIRE, 1, 0, 10),
        op("a", YIELD, 1, 20, None),
        op("b", ACQUIRE, 2, 30, 40),
    ],
    "a yield that was never carried out": [op("a", ACQUIRE, 1, 0, 10), op("a", YIELD, 1, 20, None)],
    "a turn that was lost": [op("a", ACQUIRE, 1, 0, 10), op("a", LOSE, 1, 10, None), op("b", ACQUIRE, 2, 30, 40)],
    "tokens that leave some out": [op("a", ACQUIRE, 3, 0, 1), op("a", YIELD, 3, 2, 3), op("a", ACQUIRE, 900, 4, 5)],
}
BAD = {
    "two at once": ([op("a", ACQUIRE, 1, 0, 10), op("b", ACQUIRE, 2, 5, 40)], "b"),
    "granted before the yield began": (
        [
            op("a", ACQUIRE, 1, 0, 10),
            op("b", ACQUIRE, 2, 5, 40),
            op("a", YIELD, 1, 50, 60),
            op("b", YIELD, 2, 70, 80),
        ],
        "b",
    ),
    "a token again": (
        [op("a", ACQUIRE, 1, 0, 1), op("a", YIELD, 1, 2, 3), op("b", ACQUIRE, 1, 4, 5)],
        "b",
    ),
    "a token that falls": (
        [op("a", ACQUIRE, 7, 0, 1), op("a", YIELD, 7, 2, 3), op("b", ACQUIRE, 6, 4, 5)],
        "b",
    ),
    "a yield twice": (
        [op("a", ACQUIRE, 1, 0, 1), op("a", YIELD, 1, 2, 3), op("a", YIELD, 1, 4, 5)],
        "a",
    ),
    "a yield of what was never had": ([op("a", YIELD, 1, 2, 3)], "a"),
    "lost before it was had": (
        [op("a", ACQUIRE, 1, 0, 10), op("b", ACQUIRE, 2, 11, 20), op("a", LOSE, 1, 25, None)],
        "b",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_put_in_order(name: str) -> None:
    verdict = check(GOOD[name])
    assert verdict.linearizable, verdict
    state = Lock()
    for one in verdict.order:
        following = state.after(one)
        assert following is not None
        state = following
    assert {one for one in GOOD[name] if one.end is not None} <= set(verdict.order)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_names_what_has_no_place(name: str) -> None:
    operations, client = BAD[name]
    verdict = check(operations)
    assert verdict.stuck is not None
    assert verdict.stuck.client == client
    page = draw(operations, verdict, "demo")
    assert str(verdict.stuck) in page and page.count("<svg") == 1


def test_faults_are_drawn_beside_what_the_clients_saw() -> None:
    operations = GOOD["one after the other"]
    marks = [Mark(15, "SIGKILL <replica1>"), Mark(-1_000, "before")]
    page = draw(operations, check(operations), "demo", marks)
    assert "SIGKILL &lt;replica1&gt;" in page and "before<" not in page


def test_it_agrees_with_trying_every_order() -> None:
    random = Random(5)
    found = {True: 0, False: 0}
    for _ in range(400):
        operations = [_any(random) for _ in range(random.randrange(1, 6))]
        right = _by_every_order(operations)
        assert check(operations).linearizable == right, operations
        found[right] += 1
    assert min(found.values()) >= 30, found


def _any(random: Random) -> Operation:
    begin = random.randrange(12)
    end = None if random.random() < 0.2 else begin + random.randrange(1, 8)
    return op(random.choice("ab"), random.choice(list(Kind)), random.randrange(1, 4), begin, end)


def _by_every_order(operations: list[Operation]) -> bool:
    must = [one for one in operations if one.end is not None]
    may = [one for one in operations if one.end is None]
    for chosen in range(1 << len(may)):
        some = must + [one for place, one in enumerate(may) if chosen >> place & 1]
        if any(_is_order(order) for order in permutations(some)):
            return True
    return False


def _is_order(order: tuple[Operation, ...]) -> bool:
    state: Lock | None = Lock()
    for place, one in enumerate(order):
        if any(later.end is not None and later.end < one.begin for later in order[place:]):
            return False
        state = state and state.after(one)
        if state is None:
            return False
    return True


def test_ten_thousand_operations_with_many_waiters_at_once_take_no_time() -> None:
    operations = []
    for turn in range(5_000):
        granted = turn * 10
        operations.append(op(f"j{turn % 50}", ACQUIRE, turn + 1, max(granted - 490, 0), granted + 5))
        operations.append(op(f"j{turn % 50}", YIELD, turn + 1, granted + 6, granted + 14))
    assert check(operations).linearizable


def test_what_jobs_report_is_a_history() -> None:
    lines: dict[str, list[Line]] = {
        "a": [Asked(0), Granted(10, 1, 0.0, False), Yielded(30, 1, 0, 10, 1, True, yielding=20)],
        "b": [Asked(5), Granted(25, 2, 0.0, False), Trouble(50, "TURN_LOST", "lost"), Asked(60)],
        "c": [Asked(40), Granted(55, 3, 0.0, False)],
    }
    # Nobody harmed b: that c was granted while b had not given back is no lock's answer.
    verdict = check(of_jobs(lines))
    assert verdict.stuck == op("c", ACQUIRE, 3, 40, 55)
    assert check(of_jobs(lines, excused={"b"})).linearizable
