# SPDX-License-Identifier: Apache-2.0
"""Two replicas' engines and workers on one etcd, in virtual time, with views that lag, connections that break, answers
that are lost, sessions that end, agents that refuse, repeat themselves and are registered anew, and replicas that are
restarted.

What must hold: etcd never shows two grants, a grant without the turn or before every node has committed, a ticket off
its lease, a token or an epoch that falls; nothing is decided on a view older than the replica's own last write
(protocol rule 33); and once all is well again, everybody who waits is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.apply.engine import Applied, Engine
from coordinator.apply.errors import EngineError
from coordinator.decide import Decision, GroupView
from coordinator.decide.commands import Nothing, Refusal, acquire, cancel, give_back
from ledger.codec import decode, encode
from ledger.etcd import EtcdClient, GroupCommit, TxnResult
from ledger.etcd.errors import Unavailable
from ledger.etcd.txn import Compare, Delete, Op, Put
from ledger.keys import Keys, Kind
from ledger.records import (
    Ack,
    Agent,
    Claim,
    Directive,
    DirectiveKind,
    Fault,
    GroupSpec,
    NodeDevices,
    Outcome,
    Phase,
    Process,
    Processes,
    Replica,
    Ticket,
    TicketState,
    Turn,
)
from tests.property.fake_etcd import FakeClient, FakeStore
from tests.property.virtual_time import VirtualLoop

KEYS = Keys("/w")
JOBS, REPLICAS, NODES = ("a", "b", "c"), ("r0", "r1"), ("n0", "n1")
SERVED_WITHIN = 400.0
"""Seconds in which all are served once nothing goes wrong any more, grace, backoff and time allowed included."""

_GOOD = {
    DirectiveKind.PREPARE: Outcome.PREPARED,
    DirectiveKind.COMMIT: Outcome.COMMITTED,
    DirectiveKind.RELEASE: Outcome.RELEASED,
}
_JOB, _REPLICA, _NODE = st.sampled_from(JOBS), st.sampled_from(REPLICAS), st.sampled_from(NODES)


class Replicas(RuleBasedStateMachine):
    """A group of two nodes, two replicas and three jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.store = FakeStore()
        self.clients: dict[str, FakeClient] = {}
        self.engines: dict[str, Engine] = {}
        self.sequence = 0
        self.last_session = 0
        self.broken: list[str] = []
        self.turn, self.turn_mod = Turn(), 0
        store = self.store
        store.put(KEYS.spec("g"), encode(GroupSpec(nodes=tuple(NodeDevices(node, ("d0",)) for node in NODES))))
        for node in NODES:
            store.put(KEYS.claim(node, "d0"), encode(Claim(group="g")))
            self.agent_comes(node)
        for name in REPLICAS:
            store.put(KEYS.replica(name), encode(Replica(address=name)))
            self.loop.work(self._start(name))
        store.listeners.append(self._look)
        self.log = _Errors(self.broken)
        logging.getLogger("coordinator").addHandler(self.log)
        self.asked: list[asyncio.Task[Applied | Nothing]] = []
        self.all_goes_well(10)

    async def _start(self, name: str) -> None:
        client = self.clients[name] = FakeClient(self.store)
        engine = Engine(cast(EtcdClient, client), KEYS, name, clock=self.loop.time, random=Random(name))
        self.engines[name] = engine
        engine.commit = commit = _Answered(client)
        engine.picture.group = partial(self._view, name, commit, engine.picture.group)  # type: ignore[method-assign]
        await engine.start()

    # ------------------------------------------------------------ of jobs

    @rule(job=_JOB, replica=_REPLICA, waits=st.booleans())
    def acquire(self, job: str, replica: str, waits: bool) -> None:
        self.last_session += 1
        self.sequence += 1
        self.store.leases.add(self.last_session)
        process = Process("boot", 100 + JOBS.index(job), self.last_session)
        ticket = Ticket(session=f"{self.last_session:016x}", process=process, sequence=self.sequence)
        self._ask(replica, lambda view: acquire(view, job, ticket), waits=waits)

    @precondition(lambda self: self._granted())
    @rule(replica=_REPLICA, waits=st.booleans())
    def give_back(self, replica: str, waits: bool) -> None:
        self._give_back(replica, waits=waits)

    @rule(job=_JOB, replica=_REPLICA)
    def cancel(self, job: str, replica: str) -> None:
        ticket = self._tickets().get(job)
        if ticket is not None:
            self._ask(replica, lambda view: cancel(view, job, ticket.session, ticket.sequence), waits=True)

    @rule(job=_JOB)
    def session_ends(self, job: str) -> None:
        ticket = self._tickets().get(job)
        if ticket is not None:
            self.store.end_lease(int(ticket.session, 16))

    # ------------------------------------------------------------ of the agents

    @rule(node=_NODE)
    def agent_obeys(self, node: str) -> None:
        self._answer(node, lambda directive: Ack(outcome=_GOOD[directive.kind]))

    @rule(node=_NODE, fault=st.sampled_from((Fault.NODE, Fault.OUTGOING)))
    def agent_refuses(self, node: str, fault: Fault) -> None:
        def answer(directive: Directive) -> Ack:
            if directive.kind is DirectiveKind.RELEASE:
                return Ack(outcome=Outcome.RELEASED)
            return Ack(outcome=Outcome.REFUSED, fault=fault, why="it will not")

        self._answer(node, answer)

    @rule(node=_NODE)
    def agent_repeats_itself(self, node: str) -> None:
        """As who does not know that it was heard."""
        there = self.store.kvs.get(KEYS.ack(node, "g"))
        if there is not None and self._registered(node):
            self.store.put(there.key, there.value)

    @rule(node=_NODE)
    def agent_goes(self, node: str) -> None:
        self.store.txn((), (Delete(KEYS.agent(node)),))

    @rule(node=_NODE)
    def agent_comes(self, node: str) -> None:
        """In a new registration, whose answers alone count from then on."""
        self.store.txn((), (Delete(KEYS.agent(node)),))
        self.store.put(KEYS.agent(node), encode(Agent(boot_id="boot")))

    @rule(steps=st.integers(1, 12))
    def all_goes_well(self, steps: int) -> None:
        """For a while the agents are there, and obey one after the other."""
        for node in NODES:
            if not self._registered(node):
                self.agent_comes(node)
        for _ in range(steps):
            for node in NODES:
                self.agent_obeys(node)
                self.loop.pass_time(0.125)

    # ------------------------------------------------------------ of time and the network

    @rule(seconds=st.sampled_from((0.0, 0.05, 0.5, 12.0)))
    def time_passes(self, seconds: float) -> None:
        self.loop.pass_time(seconds)

    @rule(replica=_REPLICA, ahead=st.sampled_from((0, 1, None)))
    def view_lags(self, replica: str, ahead: int | None) -> None:
        self.clients[replica].ahead = ahead
        self.clients[replica].move()

    @rule(replica=_REPLICA, away=st.booleans())
    def etcd_is_away(self, replica: str, away: bool) -> None:
        self.clients[replica].cut(away)

    @rule(replica=_REPLICA, seconds=st.sampled_from((0.001, 0.3, 2.0)))
    def requests_are_slow(self, replica: str, seconds: float) -> None:
        """What is decided now is written when others may have come before it."""
        self.clients[replica].slow = seconds

    @rule(replica=_REPLICA)
    def watch_breaks(self, replica: str) -> None:
        self.clients[replica].break_watches(Unavailable("the connection broke", ambiguous=False))

    @rule(replica=_REPLICA, applied=st.booleans())
    def answer_is_lost(self, replica: str, applied: bool) -> None:
        self.clients[replica].spoil = applied

    @rule()
    def compacted(self) -> None:
        self.store.compact()

    @rule(replica=_REPLICA)
    def replica_restarts(self, replica: str) -> None:
        self.loop.work(self.engines[replica].close())
        self.store.listeners.remove(self.clients[replica].move)
        self.loop.work(self._start(replica))

    # ------------------------------------------------------------ what must hold

    @invariant()
    def nothing_is_broken(self) -> None:
        assert not self.broken, "; ".join(self.broken)

    def _view(
        self, name: str, commit: _Answered, group: Callable[..., GroupView | None], *asked: Any
    ) -> GroupView | None:
        """What is decided on, at once, whoever decides: looked at here, not where the engine says that it waited."""
        view = group(*asked)
        if view is not None and view.revision < commit.last:
            self.broken.append(f"{name} decides at revision {view.revision}, and has itself written {commit.last}")
        return view

    def _look(self) -> None:
        """At each state of etcd, as it is written."""
        kv = self.store.kvs.get(KEYS.turn("g"))
        if kv is None:
            return
        turn, before = decode(Turn, kv.value), self.turn
        if turn.token < before.token or turn.epoch < before.epoch:
            self.broken.append(f"token {before.token}, epoch {before.epoch} became {turn.token}, {turn.epoch}")
        if turn.phase is Phase.HELD and before.phase is not Phase.HELD and turn.token == before.token:
            self.broken.append(f"token {turn.token} is given out again")
        if (before.phase, turn.phase) == (Phase.COMMITTING, Phase.HELD):
            self.broken += [f"{node} has not committed, and the turn is held" for node in NODES if self._owes(node)]
        changed, self.turn, self.turn_mod = kv.mod_revision != self.turn_mod, turn, kv.mod_revision
        granted = [(job, one) for job, one in self._tickets().items() if one.state is TicketState.GRANTED]
        if len(granted) > 1:
            self.broken.append(f"{' and '.join(job for job, _ in granted)} are granted")
        for job, ticket in granted:
            if turn.phase is not Phase.HELD or (turn.holder and turn.holder.job) != job or turn.token != ticket.token:
                self.broken.append(f"{job} is granted token {ticket.token}, and the turn is {turn}")
            if not self.store.kvs[KEYS.ticket("g", job)].lease:
                self.broken.append(f"the ticket of {job} is off its lease")
        if changed and turn.phase is Phase.HELD and before.phase is not Phase.HELD and not granted:
            self.broken.append(f"the turn is held without a ticket: {turn}")

    def teardown(self) -> None:
        try:
            self._end()
        finally:
            logging.getLogger("coordinator").removeHandler(self.log)

    def _end(self) -> None:
        for client in self.clients.values():
            client.ahead, client.spoil, client.slow = None, None, 0.001
            client.cut(False)
        try:
            self._settle()
        finally:
            for engine in self.engines.values():
                self.loop.work(engine.close())
            self.loop.pass_time(10.0)  # what is on its way arrives
            self.loop.close()

    def _settle(self) -> None:
        for task in self.asked:
            self.loop.work(_settled(task))
        # What a pin waits for: something has changed in the processes of its job.
        for node in NODES:
            self.store.put(KEYS.processes(node, "g"), encode(Processes()))
        until = self.loop.now + SERVED_WITHIN
        while (self._tickets() or self.turn.phase is not Phase.IDLE) and self.loop.now < until and not self.broken:
            self.all_goes_well(1)
            if self._granted():
                self._give_back(REPLICAS[0], waits=True)
        self.nothing_is_broken()
        assert not self._tickets(), f"never served: {self._tickets()}; the turn is {self.turn}"

    # ------------------------------------------------------------ inside

    def _ask(self, replica: str, ask: Callable[[GroupView], Decision | Nothing], *, waits: bool) -> None:
        """Ask a replica. ``waits``: for its answer; else whatever is next happens meanwhile."""
        task = self.loop.create_task(self.engines[replica].command("g", ask, within=2.0))
        self.asked.append(task)
        if waits:
            self.loop.work(_settled(task))

    def _give_back(self, replica: str, *, waits: bool) -> None:
        for job in self._granted():
            ticket = self._tickets()[job]
            ask = partial(give_back, job=job, session=ticket.session, token=ticket.token)
            self._ask(replica, ask, waits=waits)

    def _tickets(self) -> dict[str, Ticket]:
        found = {}
        for key, kv in self.store.kvs.items():
            place = KEYS.place(key)
            if place is not None and place.kind is Kind.TICKET:
                found[place.name] = decode(Ticket, kv.value)
        return found

    def _granted(self) -> list[str]:
        return [job for job, ticket in self._tickets().items() if ticket.state is TicketState.GRANTED]

    def _registered(self, node: str) -> int:
        """In which registration its agent answers; 0: in none."""
        agent = self.store.kvs.get(KEYS.agent(node))
        return agent.create_revision if agent else 0

    def _owes(self, node: str) -> bool:
        """Whether what it was told last is no COMMIT that it has carried out."""
        told, said = self.store.kvs.get(KEYS.directive(node, "g")), self.store.kvs.get(KEYS.ack(node, "g"))
        ack = decode(Ack, said.value) if said else Ack()
        return told is None or (ack.directive_revision, ack.outcome) != (told.mod_revision, Outcome.COMMITTED)

    def _answer(self, node: str, answer: Callable[[Directive], Ack]) -> None:
        """Answer the directive in force, as an agent may: once in each registration, for good."""
        told, incarnation = self.store.kvs.get(KEYS.directive(node, "g")), self._registered(node)
        if told is None or not incarnation:
            return
        key = KEYS.ack(node, "g")
        there = self.store.kvs.get(key)
        last = decode(Ack, there.value) if there else Ack()
        if (last.directive_revision, last.incarnation) == (told.mod_revision, incarnation):
            return
        directive, given = decode(Directive, told.value), answer(decode(Directive, told.value))
        ack = Ack(
            directive_revision=told.mod_revision,
            epoch=directive.epoch,
            incarnation=incarnation,
            outcome=given.outcome,
            fault=given.fault,
            why=given.why,
        )
        self.store.txn((), (Put(key, encode(ack)),))


class _Errors(logging.Handler):
    """What a replica calls an error breaks it: a decision that failed is tried again, and would not be seen here."""

    def __init__(self, broken: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._broken = broken

    def emit(self, record: logging.LogRecord) -> None:
        why = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        self._broken.append(record.getMessage() + why)


class _Answered(GroupCommit):
    """Keeps the ``last`` revision of a transaction that has succeeded, from when whoever made it is told."""

    last = 0

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        result = await super().txn(compares, success, failure, idempotent=idempotent, timeout=timeout)
        if result.succeeded:
            self.last = max(self.last, result.revision)
        return result


async def _settled(task: asyncio.Task[Applied | Nothing]) -> None:
    """Wait for the answer; that it was not carried out is one."""
    with contextlib.suppress(EngineError, Refusal):
        await task


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=150, stateful_step_count=40)
