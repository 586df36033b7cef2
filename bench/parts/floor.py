# SPDX-License-Identifier: Apache-2.0
"""Part b: the floor's processes beside the system's, on the same etcd; see `bench.floor` for what they do."""

from __future__ import annotations

import contextlib

from bench.floor.script import MOVING_GROUP, Script, Step, size
from bench.measure import Case
from bench.parts import names
from bench.system import Bench, Contender, Pair, alone, free_port, started


def cases(bench: Bench, stack: contextlib.ExitStack, script: Script) -> list[Case]:
    """The same three things as the system's: the same pairs of processes, told the same."""
    endpoint = start(bench, stack, script)

    def job(group: str, side: str) -> Contender:
        return Contender(bench, stack, "bench.floor.job", endpoint, group, f"{group}-{side}")

    def pair(group: str) -> Pair:
        return Pair(bench.store, job(group, "a"), job(group, "b"))

    single, empty, moving = job("g0", "a"), pair("g1"), pair(MOVING_GROUP)
    return [
        Case(names.FLOOR_ALONE, lambda: alone(bench.store, single)),
        Case(names.FLOOR_HAND_OFF, empty.hand_off),
        Case(names.FLOOR_MOVING, moving.hand_off),
    ]


def start(bench: Bench, stack: contextlib.ExitStack, script: Script, *, nodes: int = 1) -> str:
    """A replica, and for each node an agent with its helper and its devices; returns the replica's endpoint."""
    stack.callback(bench.store.delete, "/floor/")
    endpoint = free_port(stack)
    path = bench.folder / "script.json"
    script.save(path)
    sockets = {f"n{n}": bench.sockets / f"floor-n{n}" for n in range(nodes)}
    devices = [
        bench.child(f"floor-device-{node}", ["-m", "bench.floor.device", "serve", str(socket)], "^floor devices serve")
        for node, socket in sockets.items()
    ]
    started(stack, *devices)
    store = ("--etcd", bench.etcd_option, "--script", str(path))
    command = ["-m", "bench.floor.replica", *store, "--listen", endpoint, "--nodes", str(nodes)]
    others = [bench.child("floor-replica", command, "^floor replica serves")]
    for node, socket in sockets.items():
        command = ["-m", "bench.floor.agent", *store, "--node", node, "--socket", str(socket)]
        command += ["--journal", str(bench.folder / f"floor-{node}.journal")]
        others.append(bench.child(f"floor-agent-{node}", command, "^floor agent serves"))
    started(stack, *others)
    return endpoint


def told(script: Script) -> tuple[str, ...]:
    """What the floor replays, for the reader."""

    def one(what: str, steps: tuple[Step, ...]) -> str:
        transactions, keys, length = size(steps)
        calls, rereads = sum(step.calls for step in steps), sum(step.rereads for step in steps)
        return (
            f"floor, {what}: {transactions} transactions, {keys} keys, {length} bytes of values; "
            f"{calls} calls of the driver, {rereads} linearizable reads, {3 if calls else 0} fsyncs of the journal"
        )

    return (
        one("acquire + yield", (script.free, script.back)),
        one("hand-off", script.hand_off),
        one("hand-off, a process each", script.moving),
    )
