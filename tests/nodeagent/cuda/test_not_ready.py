# SPDX-License-Identifier: Apache-2.0
"""An agent of a node that cannot do it runs, says why, and refuses."""

from __future__ import annotations

import signal
import subprocess

from ledger.records import Fault, Outcome
from tests.nodeagent.director import NODE, PREPARE, Director
from tests.nodeagent.simnode import DEADLINE, ROOT, start


def start_cuda_agent(boss: Director) -> subprocess.Popen[bytes]:
    """An agent for NVIDIA devices, where there is no NVML: its Python package is hidden by one that fails."""
    hidden = boss.node.folder / "hidden"
    hidden.mkdir()
    (hidden / "pynvml.py").write_text("raise ImportError('hidden')\n")
    places = ["--state-dir", str(boss.node.folder / "state"), "--etcd", boss.endpoint, "--prefix", boss.keys.prefix]
    with (boss.node.folder / "agent.log").open("ab") as output:
        agent = start(
            ["-m", "nodeagent", "--node", NODE, "--backend", "cuda", *places],
            env={"PYTHONPATH": f"{hidden}:{ROOT}:{ROOT / 'protos'}"},
            stderr=output,
        )
    boss.node.keep(agent)
    return agent


async def test_it_registers_with_the_reason_and_refuses_as_the_nodes_fault(boss: Director) -> None:
    agent = start_cuda_agent(boss)
    registered = await boss.registered()
    (capability,) = registered.capabilities
    assert capability.startswith("cuda not ready: DRIVER: pynvml cannot be imported (hidden)")
    assert registered.devices == ()

    for kill in (False, True):
        refused = await boss.ask(PREPARE, 2 if kill else 1, "b", kill=kill)
        assert (refused.outcome, refused.fault) == (Outcome.REFUSED, Fault.NODE)
        assert "cuda is not ready on this node: DRIVER: pynvml cannot be imported (hidden)" in refused.why
    assert "Every switch is refused" in boss.agent_log()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE) == 0
