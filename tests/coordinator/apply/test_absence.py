# SPDX-License-Identifier: Apache-2.0
"""Rules 23 and 24: how long an agent has been away is counted anew when it has been there in between."""

from __future__ import annotations

from coordinator.apply.engine import Engine
from coordinator.apply.worker import GroupWorker
from coordinator.decide import WaitKind, decide
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import NodeLostPolicy, Policy
from tests.coordinator.decide.views import group, on, waiting
from tests.support.etcd_source import TestEtcd

DROP = Policy(node_lost=NodeLostPolicy.DROP, drop_after_ms=600_000)


async def test_rule_23_an_absence_that_has_ended_does_not_count_for_the_next(etcd: TestEtcd, prefix: bytes) -> None:
    there = group(*waiting("b"), resident=on("a"), policy=DROP)
    away = group(*waiting("b"), resident=on("a"), policy=DROP, away=("n2",))
    async with EtcdClient(etcd.endpoints) as client:
        engine = Engine(client, Keys(prefix.decode()), "r1")
        await engine.start()
        worker = GroupWorker(engine, "g")
        (wait,) = decide(away).waits
        assert wait.kind is WaitKind.DROP
        worker._keep_waits(away, decide(away))
        worker._pass(wait, engine.view.breaks)
        worker._keep_waits(away, decide(away))
        assert wait in worker._passed
        worker._keep_waits(there, decide(there))
        assert wait not in worker._passed
        worker._keep_waits(away, decide(away))
        assert wait in worker._timers, "it begins anew"
        worker._keep_waits(there, decide(there))
        assert wait not in worker._timers
        await worker.close()
        await engine.close()
