# SPDX-License-Identifier: Apache-2.0
"""D4: what is slow is not taken for failed: it is shown, and not begun a second time, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import grpc
import pytest

from ledger.embedded import EtcdCluster
from ledger.ports import ReservedPorts
from ledger.records import Outcome
from nodeagent.backends.sim.faults import FaultKind
from tests.failures.test_store import behind_a_proxy
from tests.nodeagent.director import COMMIT, PREPARE
from tests.nodeagent.simnode import DEADLINE, SimNode, until
from timeslice_proto.v1 import nodeagent_pb2 as pb
from timeslice_proto.v1 import nodeagent_pb2_grpc

SIZE = 1_000
PROGRESS = re.compile(r"(\d+) of (\d+) bytes")


@pytest.mark.parametrize("step", ["checkpoint", "restore"])
async def test_d4_a_slow_step_of_a_switch_is_shown_and_begun_once_although_etcd_goes_away_meanwhile(
    etcd_cluster: Callable[..., EtcdCluster], node: SimNode, step: str
) -> None:
    """The directive is read anew, by a list, while it is being carried out; still nothing begins anew."""
    with ReservedPorts(1) as reserved:
        address = f"127.0.0.1:{reserved.ports[0]}"
        async with (
            behind_a_proxy(etcd_cluster(1), node) as (boss, proxy),
            grpc.aio.insecure_channel(address) as channel,
        ):
            stub = nodeagent_pb2_grpc.NodeAgentStub(channel)
            boss.start_agent("--listen", address)
            a = node.workload("a").attach("SIM-0", nominal=SIZE)
            if step == "restore":
                await boss.switch(1, "b")
            on = "b" if step == "checkpoint" else "a"
            node.driver.fault(FaultKind.SLOW, job="a", times=1, ms=2_000)
            assert (await boss.ask(PREPARE, 2, on)).outcome is Outcome.PREPARED
            told = await boss.tell(COMMIT, 2, on)
            await asyncio.to_thread(until, lambda: node.events()[-1].name == f"{step}-begin", "it has begun")
            shown: list[tuple[int, int]] = []
            await proxy.refuse()
            async with asyncio.timeout(DEADLINE):
                while not any(0 < done < all_ == SIZE for done, all_ in shown):
                    status = await stub.Status(pb.StatusRequest(), timeout=DEADLINE, wait_for_ready=True)
                    shown += [(int(done), int(all_)) for done, all_ in PROGRESS.findall(status.groups[0].doing)]
            await proxy.heal()
            assert (await boss.answer(told)).outcome is Outcome.COMMITTED
            names = [one.name for one in node.events() if one.job == "a"]
            assert names.count(f"{step}-begin") == 1
            assert a.running
