# SPDX-License-Identifier: Apache-2.0
"""Part b: the floor's processes beside the system's, on the same etcd; see `bench.floor` for what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from bench.floor.script import MOVING_GROUP, Script, Step, size
from bench.measure import Case
from bench.parts import names
from bench.system import Bench, Contender, Pair, alone, free_port, started
from bench.usage import Usage
from chaos.processes import Child
from ledger.embedded import EtcdMember


def cases(bench: Bench, stack: contextlib.ExitStack, script: Script) -> list[Case]:
    """The same three things as the system's: the same pairs of processes, told the same."""
    endpoint = start(bench, stack, script).endpoint

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


@dataclass(frozen=True, slots=True)
class Floor:
    """The floor at work.

    Attributes:
        processes: the replica and the agents, by name.
    """

    endpoint: str
    processes: Mapping[str, Child]
    etcd: EtcdMember

    def usage(self) -> Usage:
        """Of these processes and etcd."""
        pids = {name: child.pid for name, child in self.processes.items()} | {"etcd": self.etcd.pid}
        return Usage.of({name: pid for name, pid in pids.items() if pid is not None})


def start(
    bench: Bench,
    stack: contextlib.ExitStack,
    script: Script,
    *,
    nodes: int = 1,
    processes: int = 1,
    devices: bool = True,
) -> Floor:
    """A replica, and agents as tasks of so many processes, each of which asks its devices, if there are any."""
    stack.callback(bench.store.delete, "/floor/")
    endpoint = free_port(stack)
    path = bench.folder / "script.json"
    script.save(path)
    store = ("--etcd", bench.etcd_option, "--script", str(path))
    command = ["-m", "bench.floor.replica", *store, "--listen", endpoint, "--nodes", str(nodes)]
    found = {"replica0": bench.child("floor-replica", command, "^floor replica serves")}
    names = [f"n{n}" for n in range(nodes)]
    for n in range(min(processes, nodes)):
        # As the system's: a journal on the disk where there is one node, in memory where one machine plays many.
        journal = (bench.folder if devices else bench.memory) / "floor-journal"
        command = ["-m", "bench.floor.agent", *store, "--journal", str(journal), "--nodes", *names[n::processes]]
        if devices:
            socket = bench.sockets / f"floor-{n}"
            serve = ["-m", "bench.floor.device", "serve", str(socket)]
            started(stack, bench.child(f"floor-device{n}", serve, "^floor devices serve"))
            command += ["--socket", str(socket)]
        found[f"agents{n}"] = bench.child(f"floor-agents{n}", command, "^floor agents serve")
    started(stack, *found.values())
    return Floor(endpoint, found, bench.etcd.members[0])


def told(script: Script) -> tuple[str, ...]:
    """What the floor replays, for the reader."""

    def one(what: str, steps: tuple[Step, ...]) -> str:
        transactions, keys, length = size(steps)
        calls, rereads = sum(step.calls for step in steps), sum(step.rereads for step in steps)
        return (
            f"floor, {what}: {transactions} transactions, {keys} keys, {length} bytes of values; "
            f"{calls} calls of the driver, {rereads} linearizable reads, {3 if calls else 0} fdatasyncs of the journal"
        )

    return (
        one("acquire + yield", (script.free, script.back)),
        one("hand-off", script.hand_off),
        one("hand-off, a process each", script.moving),
    )
