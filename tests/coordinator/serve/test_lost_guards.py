# SPDX-License-Identifier: Apache-2.0
"""No command stands on what its own replica has yet to put right: it would try without a pause, and hold that up."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.codec import encode
from ledger.etcd.txn import Delete
from ledger.records import Ack, Directive, DirectiveKind, Health, Job, Outcome, Phase
from tests.coordinator.serve.world import World, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb

GOOD = {
    DirectiveKind.PREPARE: Outcome.PREPARED,
    DirectiveKind.COMMIT: Outcome.COMMITTED,
    DirectiveKind.RELEASE: Outcome.RELEASED,
}


def silent_for_b(directive: Directive) -> Ack | None:
    """An agent that does not answer when it is to prepare for b."""
    silent = directive.kind is DirectiveKind.PREPARE and directive.on == "b"
    return None if silent else Ack(outcome=GOOD[directive.kind])


@pytest.mark.parametrize("what", ["unquarantine", "pause"])
async def test_the_ticket_of_a_switch_goes_just_before_an_operators_word_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    replica = await world.replica()
    await world.group(replica, answer=silent_for_b)
    etcd, stub = await world.etcd(), await world.stub(replica)
    await etcd.put(world.keys.job("g", "x"), encode(Job(health=Health.QUARANTINED, why="w")))
    client = await world.client(replica)
    await client.acquire(1, "b")

    def phase() -> Phase:
        turn = replica.engine.picture.turn("g")
        assert turn is not None
        return turn.value.phase

    def known() -> bool:
        view = replica.engine.picture.group("g")
        return view is not None and "x" in view.jobs

    await until_seen(replica, lambda: phase() is Phase.PREPARING and known())
    sent, real = 0, replica.engine.commit.txn

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == 1:
            await etcd.txn([], [Delete(world.keys.ticket("g", "b"))])
        return await real(*arguments, **more)

    monkeypatch.setattr(replica.engine.commit, "txn", counted)
    if what == "pause":
        await stub.Pause(pb.PauseRequest(group="g"))
    else:
        await stub.Unquarantine(pb.UnquarantineRequest(group="g", job="x"))
    await until_seen(replica, lambda: phase() is not Phase.PREPARING)
    assert sent < 100
