# SPDX-License-Identifier: Apache-2.0
"""Many real agents as tasks of one process, ``python -m bench.agents --etcd … --prefix … --nodes n0 n1 … --state DIR``.

Each has its own client of etcd, journal, registration and watch, and devices inside this process (`bench.pool`). Told
on its standard input ``attach GROUP JOB DEVICE SECONDS NODE,…``: a process of that job, the same on all these nodes,
has state on the device of that number from now on, and a switch there costs so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from pathlib import Path

from bench.garbage import collect_as_rarely
from bench.pool import CAPACITY, InProcessPool
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Device
from nodeagent.agent import AgentConfig, NodeAgent
from nodeagent.backends.driven import DrivenBackend
from nodeagent.backends.drivers import DriverChoice
from nodeagent.hostmemory import FixedMemory
from nodeagent.journal import Journal

_TTL = 60
_MEMORY = FixedMemory(1 << 40)


def device(node: str, number: int) -> str:
    """The UUID of a device."""
    return f"SIM-{node}-{number}"


class _Agents:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._etcd, self._prefix = arguments.etcd.split(","), arguments.prefix
        self._state: Path = arguments.state
        self._pools = {
            node: InProcessPool([device(node, number) for number in range(arguments.devices)])
            for node in arguments.nodes
        }
        self._stop = asyncio.Event()
        self._jobs: list[subprocess.Popen[bytes]] = []

    async def run(self) -> None:
        collect_as_rarely(len(self._pools))
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async with asyncio.TaskGroup() as group:
            agents = [self._agent(node, pool) for node, pool in self._pools.items()]
            for agent in agents:
                group.create_task(agent.work(self._stop))
            for agent in agents:
                await agent.registration.first.wait()
            print(f"{len(agents)} agents serve", flush=True)
            while line := await reader.readline():
                self._attach(*line.decode().split()[1:])
                print("attached", flush=True)
            self._stop.set()
            for job in self._jobs:
                job.kill()

    def _agent(self, node: str, pool: InProcessPool) -> NodeAgent:
        config = AgentConfig(
            node=node,
            open_store=lambda: (EtcdClient(self._etcd), Keys(self._prefix)),
            driver=DriverChoice("sim"),
            state_dir=self._state / node,
            memory=_MEMORY,
            ttl=_TTL,
        )
        client, keys = config.open_store()
        backend = DrivenBackend("sim", pool, baseline_bytes=0)
        devices = [Device(uuid, CAPACITY) for uuid in pool.devices]
        return NodeAgent(config, devices, Journal(config.state_dir / "journal"), backend, client, keys)

    def _attach(self, group: str, job: str, number: str, seconds: str, nodes: str) -> None:
        ours = [node for node in nodes.split(",") if node in self._pools]
        if not ours:
            return
        environment = {**os.environ, "TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": group}
        # It ends with this process: the end of its input ends it.
        self._jobs.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=environment))
        for node in ours:
            pool, uuid = self._pools[node], device(node, int(number))
            pool.attach(self._jobs[-1].pid, uuid)
            pool.cost[uuid] = float(seconds)


async def _run(arguments: argparse.Namespace) -> None:
    await _Agents(arguments).run()


def main() -> None:
    """Serve until the end of the input."""
    parser = argparse.ArgumentParser(prog="python -m bench.agents")
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--nodes", nargs="+", required=True)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--state", type=Path, required=True)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
