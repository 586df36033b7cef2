# SPDX-License-Identifier: Apache-2.0
"""Part d: what a turn costs in the real system. One replica, one node, devices whose copies cost nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial

from bench.floor.script import MOVING_GROUP, Script, Step, read
from bench.measure import Case
from bench.parts import names
from bench.system import Bench, Contender, Pair, System, alone

_EMPTY, _ALONE = "empty", "alone"


class Rig:
    """Groups of one device each, and jobs in processes of their own, two for each group that is contended."""

    def __init__(self, bench: Bench, stack: contextlib.ExitStack) -> None:
        self._bench, self._stack = bench, stack
        groups = (_ALONE, "alone2", _EMPTY, "empty2", MOVING_GROUP)
        self._system = System(bench, stack, "d", devices=len(groups))
        (self._node,) = self._system.nodes
        for number, group in enumerate(groups):
            self._system.put_group(group, (self._node, number))
        self._singles = {names.ALONE: self._job(_ALONE, "a"), names.ALONE_AGAIN: self._job("alone2", "a")}
        self._pairs = {
            names.HAND_OFF: self._pair(_EMPTY),
            names.HAND_OFF_AGAIN: self._pair("empty2"),
            names.MOVING: self._pair(MOVING_GROUP),
        }
        for contender in self._singles.values():
            contender.once()  # the first is a switch: nobody knows yet who is on
        moving = self._pairs[names.MOVING]
        for _ in range(2):
            self._system.attach(stack, MOVING_GROUP, moving.holder, self._node, len(groups) - 1)
            moving.hand_off()

    def cases(self) -> list[Case]:
        store = self._bench.store

        singles = [Case(name, partial(alone, store, contender)) for name, contender in self._singles.items()]
        return [*singles, *(Case(name, pair.hand_off) for name, pair in self._pairs.items())]

    def script(self) -> Script:
        """What the system writes, as it stands in etcd's history."""
        single = self._singles[names.ALONE]
        free, back = self._steps(lambda: alone(self._bench.store, single), _ALONE, single.job, "")
        queue, *hand_off = self._of_pair(names.HAND_OFF, _EMPTY)
        _, *moving = self._of_pair(names.MOVING, MOVING_GROUP, moves=True)
        return Script(queue, free, back, tuple(hand_off), tuple(moving))

    def _of_pair(self, case: str, group: str, *, moves: bool = False) -> tuple[Step, ...]:
        pair = self._pairs[case]
        return self._steps(pair.hand_off, group, pair.holder, pair.other, moves=moves)

    def _steps(
        self, act: Callable[[], object], group: str, out: str, other: str, *, moves: bool = False
    ) -> tuple[Step, ...]:
        known = {group: "{group}", self._node.name: "{node}", out: "{out}", other: "{in}"}
        return steps(self._bench, self._system.prefix, act, known, moves=moves)

    def _job(self, group: str, side: str) -> Contender:
        return Contender(self._bench, self._stack, "bench.job", self._system.endpoints[0], group, f"{group}-{side}")

    def _pair(self, group: str) -> Pair:
        return Pair(self._bench.store, self._job(group, "a"), self._job(group, "b"))


def steps(
    bench: Bench, prefix: str, act: Callable[[], object], names: Mapping[str, str], *, moves: bool = False
) -> tuple[Step, ...]:
    """What the system under ``prefix`` writes while it does ``act``; see `bench.floor.script.read`."""
    since = bench.store.revision() + 1
    act()
    return read(bench.store.history(prefix, since), prefix, names, moves=moves)


def observe(bench: Bench) -> Script:
    """A system's writes, for a floor that is measured without one beside it."""
    with contextlib.ExitStack() as stack:
        return Rig(bench, stack).script()
