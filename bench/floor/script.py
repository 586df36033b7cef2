# SPDX-License-Identifier: Apache-2.0
"""What the floor replays: the writes of one real hand-off, seen in etcd's history, with names in their places.

A step is one transaction of one writer. Its keys are relative to the prefix and hold ``{group}``, ``{node}``, ``{out}``
and ``{in}`` (the job that yields, the one that is granted). Its values are the very values that were seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ledger.etcd import Event, EventType

PREPARE_CALLS, COMMIT_CALLS = 1, 2
"""Calls of the driver in each phase where no process moves: looks, by rule 8."""

MOVE_PREPARE_CALLS, MOVE_COMMIT_CALLS = 3, 6
"""Where one goes and one comes: look, check, lock; then look, save, verify, restore, look, unlock."""

COPIES = 2
"""Of those of COMMIT: save and restore."""

MOVING_GROUP = "moving"


@dataclass(frozen=True, slots=True)
class Write:
    """A put of ``value`` (as decoded JSON), or a delete where it is None.

    Attributes:
        leased: the key is under the session's lease.
    """

    key: str
    value: Any
    leased: bool = False

    @property
    def kind(self) -> str:
        """The last part of the key that is no name: turn, tickets, directives, acks, processes."""
        return next(part for part in reversed(self.key.split("/")) if "{" not in part)


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction.

    Attributes:
        calls: of the driver, that its writer makes before it.
        rereads: linearizable reads of the directive before it.
        copies: how many of the calls copy what is on the device, one after the other.
    """

    writes: tuple[Write, ...]
    calls: int = 0
    rereads: int = 0
    copies: int = 0

    @property
    def by_agent(self) -> bool:
        return all(one.kind in ("acks", "processes") for one in self.writes)

    @property
    def answers(self) -> bool:
        """It is an agent's answer to a directive."""
        return any(one.kind == "acks" for one in self.writes)


@dataclass(frozen=True, slots=True)
class Wide:
    """A group that has several nodes, and its own hand-off as it was seen on one of them: the others' is the same.

    Attributes:
        nodes: by name.
        seconds: of each copy.
    """

    nodes: tuple[str, ...]
    seconds: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """What the floor's replica and agent carry out.

    Attributes:
        queue: a ticket behind others.
        free: ticket and grant in one, where nobody waits and the job is still on.
        back: a yield where nobody waits.
        hand_off: from the yield to the grant, by turns of the replica and the agent, between jobs without processes.
        moving: between jobs with a process each; for groups whose name begins with `MOVING_GROUP`.
        wide: groups that are not on one node, by name.
    """

    queue: Step
    free: Step
    back: Step
    hand_off: tuple[Step, ...]
    moving: tuple[Step, ...]
    wide: Mapping[str, Wide] = field(default_factory=dict)

    def steps(self, group: str) -> tuple[Step, ...]:
        if group in self.wide:
            return self.wide[group].steps
        return self.moving if group.startswith(MOVING_GROUP) else self.hand_off

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            queue=_step(found["queue"]),
            free=_step(found["free"]),
            back=_step(found["back"]),
            hand_off=tuple(map(_step, found["hand_off"])),
            moving=tuple(map(_step, found["moving"])),
            wide={
                name: Wide(tuple(one["nodes"]), one["seconds"], tuple(map(_step, one["steps"])))
                for name, one in found["wide"].items()
            },
        )


def _step(found: Mapping[str, Any]) -> Step:
    return Step(**{**found, "writes": tuple(Write(**one) for one in found["writes"])})


def read(events: Sequence[Event], prefix: str, names: Mapping[str, str], *, moves: bool = False) -> tuple[Step, ...]:
    """The steps in a piece of history, one for each revision, oldest first.

    Args:
        prefix: of the system that was watched.
        names: what each name stands for: ``{"empty-a": "{out}"}``. Other groups' and nodes' events do not count.
        moves: processes go and come in this hand-off.

    Raises ValueError for an order of writers that no hand-off has.
    """
    by_revision: dict[int, list[Write]] = {}
    for event in events:
        key = _named(event.kv.key.decode().removeprefix(prefix), names)
        if key is not None:
            put = event.type is EventType.PUT
            value = json.loads(event.kv.value) if put else None
            by_revision.setdefault(event.kv.mod_revision, []).append(Write(key, value, put and bool(event.kv.lease)))
    steps = [Step(tuple(by_revision[revision])) for revision in sorted(by_revision)]
    answers = [step for step in steps if step.answers]
    calls = (MOVE_PREPARE_CALLS, MOVE_COMMIT_CALLS) if moves else (PREPARE_CALLS, COMMIT_CALLS)
    if answers and len(answers) != len(calls):
        raise ValueError(f"{len(answers)} answers of the agent in one hand-off, where PREPARED and COMMITTED are two")
    with_work = {
        id(step): Step(step.writes, count, number, COPIES * number if moves else 0)  # COMMITTED is number 1
        for number, (step, count) in enumerate(zip(answers, calls, strict=False))
    }
    return tuple(with_work.get(id(step), step) for step in steps)


def _named(key: str, names: Mapping[str, str]) -> str | None:
    """The key with its names replaced; None if it is none of this group, or of no part in a hand-off."""
    parts = [names.get(part, part) for part in key.split("/")]
    match parts:
        case ["groups", "{group}", "turn"] | ["groups", "{group}", "tickets", "{out}" | "{in}"]:
            return "/".join(parts)
        case ["nodes", "{node}", "directives" | "acks" | "processes", "{group}"]:
            return "/".join(parts)
        case _:
            return None


def size(steps: Sequence[Step]) -> tuple[int, int, int]:
    """How many transactions, keys and bytes of values."""
    writes = [write for step in steps for write in step.writes]
    values = [json.dumps(one.value, separators=(",", ":")) for one in writes if one.value is not None]
    return len(steps), len(writes), sum(map(len, values))
