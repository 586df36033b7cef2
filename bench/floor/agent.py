# SPDX-License-Identifier: Apache-2.0
"""The floor's agents, ``python -m bench.floor.agent --nodes n0 n1 … --etcd … --script … --journal … [--socket …]``.

Each has a client, a watch and a journal of its own. What the watch of its node brings it decodes; a directive it
answers with the script's next step, whatever it says. Without a socket no device is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.floor.script import Script, Step
from bench.floor.writer import PREFIX, write
from bench.garbage import collect_as_rarely
from ledger.etcd import EtcdClient, EventType, KeyValue, WatchBatch
from ledger.etcd.txn import Compare, Get, absent, created_at, modified_at

_ENTRY = b'00000000 {"group":"g0","highest":1000,"begun":{"epoch":1000,"on":"job-b"},"reserved":0,"locked":[]}\n'
"""A line as long as the agent's journal has them."""


@dataclass(slots=True)
class _Group:
    """How far one group's hand-off is, and the answer that is there.

    Attributes:
        seconds: of each copy.
    """

    steps: list[list[Step]]
    seconds: float
    step: int = 0
    answer: int = 0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Helper:
    """The process that asks the devices."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._to, self._answers, self._turn = process.stdin, process.stdout, asyncio.Lock()

    async def call(self) -> None:
        async with self._turn:
            self._to.write(b'{"id": 1, "call": "use", "pid": 0, "devices": ["SIM-n0-0"]}\n')
            await self._to.drain()
            json.loads(await self._answers.readline())


class Agent:
    """See the module."""

    def __init__(self, client: EtcdClient, node: str, script: Script, helper: Helper | None, journal: int) -> None:
        self._client, self._node, self._helper, self._journal = client, node, helper, journal
        self._script = script
        self._registration = f"{PREFIX}nodes/{node}/agent".encode()
        self._incarnation = 0
        self._groups: dict[str, _Group] = {}
        self._work: set[asyncio.Task[None]] = set()

    async def run(self, registered: asyncio.Event) -> None:
        """Register, say so, and answer for ever."""
        self._incarnation = (await self._client.put(self._registration, b"{}")).header.revision
        async with self._client.watch(f"{PREFIX}nodes/{self._node}/".encode(), deliver=self._take_all) as watch:
            registered.set()
            await watch.ended()

    async def _take_all(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.type is EventType.PUT:
                self._take(event.kv)

    def _take(self, kv: KeyValue) -> None:
        msgspec.json.decode(kv.value)
        match kv.key[len(PREFIX) :].split(b"/"):
            case [b"nodes", _, b"directives", group]:
                task = asyncio.create_task(self._obey(group.decode(), kv))
                self._work.add(task)
                task.add_done_callback(self._ended)
            case _:
                pass

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        task.result()  # a fault ends the floor by its log

    async def _obey(self, name: str, directive: KeyValue) -> None:
        group = self._groups.get(name)
        if group is None:
            wide = self._script.wide.get(name)
            told = _by_directive(self._script.steps(name))
            group = self._groups[name] = _Group(told, wide.seconds if wide else 0.0)
        async with group.changing:
            steps = group.steps[group.step]
            group.step = (group.step + 1) % len(group.steps)
            self._note()
            for step in steps:
                await self._carry_out(name, group, step, directive)
            if group.step == 0:
                self._note()  # COMMIT is over

    async def _carry_out(self, name: str, group: _Group, step: Step, directive: KeyValue) -> None:
        for _ in range(step.rereads):
            await self._client.get(directive.key)
        if self._helper is not None:
            for _ in range(step.calls):
                await self._helper.call()
        if group.seconds:
            for _ in range(step.copies):
                await asyncio.sleep(group.seconds)
        ack = f"{PREFIX}nodes/{self._node}/acks/{name}".encode()
        guards: list[Compare] = [modified_at(directive.key, directive.mod_revision)]
        guards += [created_at(self._registration, self._incarnation)]
        guards += [modified_at(ack, group.answer) if group.answer else absent(ack)]
        reads = [Get(ack), Get(directive.key), Get(self._registration)]
        revision = await write(self._client, step, {"group": name}, (self._node,), guards, [*reads])
        if step.answers:
            group.answer = revision

    def _note(self) -> None:
        os.write(self._journal, _ENTRY)
        os.fdatasync(self._journal)


def _by_directive(hand_off: Sequence[Step]) -> list[list[Step]]:
    """What the agent writes for each directive in turn."""
    told: list[list[Step]] = []
    for before, step in itertools.pairwise(hand_off):
        if step.by_agent and not before.by_agent:
            told.append([])
        if step.by_agent:
            told[-1].append(step)
    return told


async def _helper(socket: Path) -> Helper:
    command = [sys.executable, "-m", "bench.floor.device", "ask", str(socket)]
    pipe = asyncio.subprocess.PIPE
    return Helper(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))


async def _run(arguments: argparse.Namespace) -> None:
    collect_as_rarely(len(arguments.nodes))
    helper = await _helper(arguments.socket) if arguments.socket else None
    script = Script.load(arguments.script)
    async with asyncio.TaskGroup() as group:
        waits = []
        for node in arguments.nodes:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            journal = os.open(f"{arguments.journal}-{node}", flags, 0o600)
            client = EtcdClient(arguments.etcd.split(","))
            waits.append(asyncio.Event())
            group.create_task(Agent(client, node, script, helper, journal).run(waits[-1]))
        for wait in waits:
            await wait.wait()
        print("floor agents serve", flush=True)


def main() -> None:
    """Answer until killed; the helper ends with its input."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor.agent")
    parser.add_argument("--nodes", nargs="+", required=True)
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--journal", required=True, help="the path of each node's but for its end, which is its name")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
