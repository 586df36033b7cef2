# SPDX-License-Identifier: Apache-2.0
"""`timeslice agent`: run the agent of one node."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from ledger import logs
from ledger.errors import BadName, LedgerError
from ledger.options import Store, add_store_options, store_from
from nodeagent.agent import AgentConfig, NodeAgent, run_agent
from nodeagent.backends.base import BackendError
from nodeagent.backends.drivers import DriverChoice
from nodeagent.errors import AgentError
from nodeagent.hostmemory import FixedMemory, MachineMemory
from nodeagent.order import CannotKill
from nodeagent.serve import serving

if TYPE_CHECKING:
    # The name of a private class, that only annotations need.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_BASELINE = {"sim": 0, "cuda": 1 << 30}
_EXAMPLES = """\
examples:
  timeslice agent --node gpu-7 --etcd 10.0.0.1:2379 --backend cuda --state-dir /var/lib/timeslice
  timeslice agent --node sim-0 --backend sim --sim-socket /tmp/device.sock --state-dir /tmp/agent

A simulated device: python -m nodeagent.backends.sim.device --socket /tmp/device.sock --log /tmp/device.log

While etcd is away the agent goes on trying, and says so in its log. SIGTERM or SIGINT ends it; what is on the devices
stays there.

exit status:
  0 ended as it was told    1 it cannot go on: the error says why    2 wrong arguments
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to `timeslice`."""
    parser = subparsers.add_parser(
        "agent",
        help="run the agent of this node",
        description="Carries out the coordinator's directives on the accelerators of this node, and owns them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command line of the agent."""
    parser.add_argument(
        "--node", default=socket.gethostname().split(".")[0].lower(), help="its name (default: %(default)s)"
    )
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="(default: %(default)s)")
    parser.add_argument("--sim-socket", metavar="SOCKET", type=Path, help="of the simulated device, for --backend sim")
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        type=Path,
        required=True,
        help="of this node alone, kept over restarts: the journal and the devices' locks",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="serve the gRPC service NodeAgent (checkpoint, restore, status) there (default: not at all)",
    )
    parser.add_argument(
        "--baseline-bytes", metavar="N", type=int, help="what a device without a process may have in use"
    )
    parser.add_argument(
        "--host-memory", metavar="N", type=int, help="bytes for parked state (default: what the machine has)"
    )
    parser.add_argument("--ttl", metavar="S", type=int, default=10, help="of its registration (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="log each step")
    add_store_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT. The exit status: 0; 1 for an error, which is printed; 2 for wrong options.

    Once the agent is registered one line on the standard output says so: ``agent NODE serves DEVICE, …``.
    """
    logs.to_stderr(logging.DEBUG if args.verbose else logging.INFO)
    try:
        config = _config(args, store_from(args))
    except (ValueError, OSError, BadName) as error:
        print(f"timeslice agent: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(config, args.listen))
    except (AgentError, BackendError, CannotKill, LedgerError, OSError) as error:
        print(f"The agent of {args.node} cannot go on. {error}", file=sys.stderr)
        return 1
    return 0


def _config(args: argparse.Namespace, store: Store) -> AgentConfig:
    """Raises ValueError or BadName for what cannot be meant."""
    if args.backend == "sim" and args.sim_socket is None:
        raise ValueError("--backend sim needs --sim-socket: where `python -m nodeagent.backends.sim.device` serves.")
    return AgentConfig(
        node=args.node,
        open_store=store.open,
        driver=DriverChoice(args.backend, str(args.sim_socket or "")),
        state_dir=args.state_dir,
        baseline_bytes=_BASELINE[args.backend] if args.baseline_bytes is None else args.baseline_bytes,
        memory=MachineMemory() if args.host_memory is None else FixedMemory(args.host_memory),
        ttl=args.ttl,
        address=args.listen or "",
    )


async def _run(config: AgentConfig, listen: str | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    @contextlib.asynccontextmanager
    async def beside(agent: NodeAgent) -> AsyncIterator[None]:
        async with serving(listen)(agent):
            ready = asyncio.create_task(_say_ready(agent), name="says that it is ready")
            try:
                yield
            finally:
                ready.cancel()
                await asyncio.gather(ready, return_exceptions=True)

    await run_agent(config, stop, beside)


async def _say_ready(agent: NodeAgent) -> None:
    await agent.registration.first.wait()
    devices = ", ".join(one.uuid for one in agent.devices) or "no devices"
    print(f"agent {agent.config.node} serves {devices}", flush=True)
