# SPDX-License-Identifier: Apache-2.0
"""The production agent, run for one step at a time: `nodeagent.worker.Worker` over a model of all that it touches.

The worker, its switch, its plan, its journal and its store are the code that runs on a node. They are put into a
situation, run until they have an answer for the ledger, find nothing to do, or die, and asked what has become of it:
once for every way in which the calls that they make may turn out. What is left out is time: nothing takes any.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from chaos.explore.device import (
    GROUP,
    Choices,
    Died,
    ModelDevice,
    ModelJournal,
    NoShortage,
    Stop,
    client_process,
    job_of,
    life_of,
    named,
    processes_of,
    records_of,
)
from chaos.explore.state import Answer, DirectiveState, Process, Record, Saying
from ledger.codec import decode
from ledger.etcd.errors import EtcdError
from ledger.etcd.records import Header, KeyValue, RangeResult, TxnResult
from ledger.etcd.txn import Compare, Op, Put
from ledger.kept import Kept
from ledger.keys import Keys, Kind
from ledger.records import Ack, Directive, DirectiveKind, Outcome, Processes
from nodeagent import agent as program
from nodeagent.journal import CommitBegun, GroupJournal, JournalState
from nodeagent.picture import Picture, Seen
from nodeagent.store import NodeStore
from nodeagent.switch import Switch
from nodeagent.worker import Worker

KEYS = Keys("/explored/")
NODE = "n"
EPOCH, INCARNATION, DIRECTIVE, ACK, RECORD, REVISION = 40, 7, 50, 55, 10, 100
"""The numbers that stand for the current ones; one less is an older one."""

_NODE_FAULTS = ("restart", "refuse", "unfit", "unsavable", "resist", "unsaved", "fatal", "unrestored", "stuck")
_BETWEEN_FAULTS = ("restart", "stuck")
_HEADER = Header(1, 1, REVISION, 1)


class Situation(NamedTuple):
    """What an agent's next step depends on: a part of `NodeState`.

    Attributes:
        told: the directive that it has read; None: there is none.
        behind: that directive is of an older epoch than the one that is there.
        superseded: another has taken its place since.
        answer: the outcome that is in the ledger for it; "": none. ``there``: an answer to an older one is.
    """

    registered: bool
    ahead: bool
    prepared: bool
    refused: bool
    begun: int
    locked: tuple[tuple[int, int], ...]
    disk: tuple[int, tuple[tuple[int, int], ...]] | None
    helped: tuple[int, ...]
    told: DirectiveState | None
    behind: bool
    superseded: bool
    answer: str
    there: bool
    processes: tuple[Process | None, ...]
    records: tuple[Record | None, ...]
    recorded: bool
    claimed: bool
    lasting: str
    unsure: bool = False


class Become(NamedTuple):
    """What has become of it.

    Attributes:
        faults: what went wrong on the way.
        died: the agent did; ``orphans`` then: what its helpers still do.
        wrote: the process records have changed.
    """

    faults: tuple[str, ...]
    died: bool
    prepared: bool
    begun: int
    locked: tuple[tuple[int, int], ...]
    disk: tuple[int, tuple[tuple[int, int], ...]] | None
    helped: tuple[int, ...]
    orphans: tuple[tuple[int, str], ...]
    processes: tuple[Process | None, ...]
    records: tuple[Record | None, ...]
    wrote: bool
    saying: Saying | None
    lasting: str


class _Bell(asyncio.Event):
    """The worker's sign that something has changed: where it would wait for that, or look anew, its step is over."""

    def __init__(self) -> None:
        super().__init__()
        self._heard = False

    def clear(self) -> None:
        if self._heard:
            raise Stop
        self._heard = True

    async def wait(self) -> Any:
        raise Stop


@dataclass(slots=True)
class _Ledger:
    """The client of etcd that the production `NodeStore` is given. Its one transaction applies or does not."""

    situation: Situation
    jobs: tuple[str, ...]
    choices: Choices
    records: tuple[Record | None, ...]
    wrote: bool = False
    saying: Saying | None = None

    async def get(self, key: bytes) -> KeyValue | None:
        if self.situation.unsure:
            raise EtcdError("etcd does not answer")
        return _kv(key, DIRECTIVE)

    async def txn(
        self,
        compares: Sequence[Compare],
        ops: Sequence[Op],
        otherwise: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        puts = {place.kind: op.value for op in ops if isinstance(op, Put) and (place := KEYS.place(op.key))}
        records = decode(Processes, puts[Kind.PROCESSES]) if Kind.PROCESSES in puts else None
        after = None if records is None else records_of(records, self.jobs)
        if Kind.ACK in puts:
            compared = (place.kind.name.lower() for one in compares if (place := KEYS.place(one.key)))
            self.saying = Saying(_answer(decode(Ack, puts[Kind.ACK])), after, tuple(sorted(compared)))
            raise Stop
        wrong = [one for one in compares if one.number != self._number(one)]
        if wrong or after is None:
            return TxnResult(_HEADER, False, tuple(self._range(op.key) for op in otherwise))
        if self.choices.dies(1):
            raise Died
        self.records, self.wrote = after, True
        return TxnResult(_HEADER, True, ())

    def _number(self, compare: Compare) -> int:
        """What is there, as this compare sees it."""
        place = KEYS.place(compare.key)
        assert place is not None
        match place.kind:
            case Kind.DIRECTIVE:
                return DIRECTIVE if self.situation.told or self.situation.superseded else 0
            case Kind.AGENT:
                return INCARNATION if self.situation.registered else 0
            case Kind.PROCESSES:
                return RECORD if self.situation.recorded or self.wrote else 0
            case _:
                raise AssertionError(place)

    def _range(self, key: bytes) -> RangeResult:
        place = KEYS.place(key)
        assert place is not None
        kvs = (_kv(key, DIRECTIVE if place.kind is Kind.DIRECTIVE else INCARNATION),)
        return RangeResult(_HEADER, kvs, 1, False)


class _Picture(Picture):
    """What the agent's view of the ledger says: that of the situation."""

    def __init__(self, situation: Situation, jobs: tuple[str, ...], ledger: _Ledger) -> None:
        self.situation, self.jobs, self.ledger = situation, jobs, ledger

    def seen(self, group: str) -> Seen:
        at, recorded = self.situation, self.situation.recorded or self.ledger.wrote
        mod = DIRECTIVE - 1 if at.superseded else DIRECTIVE
        ack = Ack(directive_revision=mod, epoch=EPOCH, outcome=Outcome[at.answer]) if at.answer else Ack()
        return Seen(
            directive=Kept(NODE, _directive(at, self.jobs), mod, mod) if at.told else None,
            ack=Kept(NODE, ack, ACK, ACK) if at.answer or at.there else None,
            processes=Kept(NODE, processes_of(self.ledger.records, self.jobs), RECORD, RECORD) if recorded else None,
            devices=("gpu",) if at.claimed else (),
            known={self.jobs[job]: (named(job, one.session),) for job, one in enumerate(at.processes) if one},
            registered=frozenset(),
        )

    def directive(self, group: str) -> int:
        return DIRECTIVE

    def foreign(self, group: str) -> frozenset[str]:
        return frozenset()

    def parked(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class _Around:
    """The production `Surroundings` of a worker."""

    picture: Picture
    incarnation: int

    async def reached(self, revision: int, within: float) -> None:
        """It is as new at once."""


class _Worker(Worker):
    """The production worker, whose memory can be set and read."""

    def remember(self, at: Situation) -> None:
        self._changed = _Bell()
        if at.prepared:
            self._prepared = (EPOCH, INCARNATION)
        if at.unsure:
            self._confirmed = -math.inf

    @property
    def is_prepared(self) -> bool:
        return self._prepared == (EPOCH, INCARNATION)

    def hear(self) -> None:
        self._newer.set()

    def settle(self, outcome: Outcome) -> None:
        self._settle(outcome)


class _SeesNewer(ModelDevice):
    """A device whose agent may hear of a newer directive at any of its looks."""

    tell: Callable[[], None]

    async def find(self, *arguments: Any, within: float) -> Any:
        if self.choices.hears():
            self.tell()
        return await super().find(*arguments, within=within)


@dataclass(slots=True)
class Lives:
    """Runs the production agent of a node, once for each situation that it can tell apart."""

    jobs: tuple[str, ...]
    stays: bool
    _known: dict[object, tuple[Become, ...]] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def runs(self) -> int:
        """How many different situations it was put into."""
        return len(self._known)

    def step(self, at: Situation, left: Mapping[str, int]) -> tuple[Become, ...]:
        """Everything that may become of an agent that goes on."""
        names = _NODE_FAULTS if at.told and not at.answer else _BETWEEN_FAULTS
        return self._all(("step", at), at, _of(names, left), self._step)

    def start(self, at: Situation, left: Mapping[str, int]) -> tuple[Become, ...]:
        """Everything that may become of a new agent before it asks etcd anything."""
        return self._all(("start", at), at, _of(("restart", "stuck"), left), self._start)

    def settle(self, at: Situation, outcome: str) -> Become:
        """What the agent notes once its answer is in the ledger."""
        (become,) = self._all(("settle", at, outcome), at, {}, lambda run: _settled(run, outcome))
        return become

    def _all(
        self, about: object, at: Situation, left: Mapping[str, int], go: Callable[[_Run], None]
    ) -> tuple[Become, ...]:
        key = (about, tuple(left.items()))
        found = self._known.get(key)
        if found is None:
            outcomes = dict.fromkeys(self._outcomes(at, left, go))
            found = self._known[key] = tuple(outcomes)
        return found

    def _outcomes(self, at: Situation, left: Mapping[str, int], go: Callable[[_Run], None]) -> Iterator[Become]:
        """Follows every script: each choice that was open beyond it is tried the other ways, in runs of their own."""
        scripts: list[tuple[int, ...]] = [()]
        for script in scripts:
            choices = Choices(left, at.lasting, self.stays, script)
            run = _Run(at, self.jobs, choices)
            try:
                go(run)
            except Died:
                yield run.become(died=True)
            except Stop:
                yield run.become()
            else:
                yield run.become()
            for place in range(len(script), len(choices.open)):
                taken = (*script, *itertools.repeat(0, place - len(script)))
                scripts += [(*taken, way) for way in range(1, choices.open[place])]

    def _step(self, run: _Run) -> None:
        self._complete(run.worker.run())

    def _start(self, run: _Run) -> None:
        config = cast(program.AgentConfig, _Config())
        self._complete(program.unlock_left(config, run.journal, cast(Any, run.device)))

    def _complete(self, work: Any) -> None:
        if self._loop is None:
            logging.getLogger("nodeagent").setLevel(logging.CRITICAL + 1)
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(lambda loop, context: None)  # of what was beside an agent that died
        self._loop.run_until_complete(work)


@dataclass(frozen=True, slots=True)
class _Config:
    memory: NoShortage = field(default_factory=NoShortage)


class _Run:
    """One run: the production objects, put into a situation."""

    def __init__(self, at: Situation, jobs: tuple[str, ...], choices: Choices) -> None:
        self.at, self.choices = at, choices
        on = at.told.on if at.told else ""
        kind = _SeesNewer if at.superseded else ModelDevice
        self.device = kind(jobs, list(at.processes), choices, at.refused, on, set(at.helped))
        state, disk = _journal(at, at.begun, at.locked), _journal(at, *(at.disk or (at.begun, at.locked)))
        self.journal = ModelJournal(state, disk, choices)
        self.ledger = _Ledger(at, jobs, choices, at.records)
        around = _Around(_Picture(at, jobs, self.ledger), INCARNATION if at.registered else 0)
        self.switch = Switch(GROUP, self.device, self.journal, NoShortage())
        store = NodeStore(cast(Any, self.ledger), KEYS, NODE)
        self.worker = _Worker(GROUP, self.switch, self.journal, store, around, lambda group, processes: None)
        self.worker.remember(at)
        if isinstance(self.device, _SeesNewer):
            self.device.tell = self.worker.hear

    def become(self, *, died: bool = False) -> Become:
        kept, disk = _kept(self.journal.state), _kept(self.journal.disk)
        begun, locked = disk if died else kept
        helped = tuple(sorted(self.device.helped))
        orphans = (*self.device.orphans, *((job, "undo") for job in helped))
        for job, call in self.device.orphans:
            if call == "lock":
                orphans = (*orphans, (job, "undo"))
        saying = None if died else self.ledger.saying
        if saying is not None and self.at.superseded:
            saying = saying._replace(current=False)
        return Become(
            tuple(self.choices.taken),
            died,
            not died and self.worker.is_prepared,
            begun,
            locked,
            None if died or disk == kept else disk,
            () if died else helped,
            tuple(dict.fromkeys(orphans)) if died else (),
            tuple(self.device.processes),
            self.ledger.records,
            self.ledger.wrote,
            saying,
            self.choices.lasting,
        )


def _journal(at: Situation, begun: int, locked: tuple[tuple[int, int], ...]) -> GroupJournal:
    epochs = {0: None, 1: CommitBegun(EPOCH, ""), 2: CommitBegun(EPOCH - 1, "")}
    highest = EPOCH + 1 if at.ahead else EPOCH - 1
    return GroupJournal(highest, epochs[begun], 0, tuple(named(job, session) for job, session in locked))


def _kept(state: JournalState) -> tuple[int, tuple[tuple[int, int], ...]]:
    journal = state.group(GROUP)
    epoch = 0 if journal.begun is None else journal.begun.epoch
    locked = sorted((job_of(one), life_of(one)) for one in journal.locked)
    return {0: 0, EPOCH: 1}.get(epoch, 2), tuple(locked)


def _settled(run: _Run, outcome: str) -> None:
    run.worker.settle(Outcome[outcome])


def _directive(at: Situation, jobs: tuple[str, ...]) -> Directive:
    told = at.told
    assert told is not None
    return Directive(
        epoch=EPOCH - 1 if at.behind else EPOCH,
        kind=DirectiveKind[told.kind],
        on=told.on,
        keep=told.keep,
        devices=("gpu",) if at.claimed else (),
        kill=told.kill,
        lost_job=told.lost_job,
        lost_process=client_process(jobs.index(told.lost_job), told.lost_session) if told.lost_session else None,
        on_process=client_process(jobs.index(told.on), told.on_session) if told.on_session else None,
    )


def _answer(ack: Ack) -> Answer:
    lost = bool(ack.lost)
    return Answer(ack.outcome.name, ack.fault.name, ack.failure.name, ack.job, lost, ack.restored)


def _kv(key: bytes, revision: int) -> KeyValue:
    return KeyValue(key, b"", revision, revision, 1, 0)


def _of(names: Sequence[str], left: Mapping[str, int]) -> dict[str, int]:
    return {name: left[name] for name in names if left.get(name)}
