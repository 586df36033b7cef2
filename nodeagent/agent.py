# SPDX-License-Identifier: Apache-2.0
"""The node agent: takes the devices' OS locks, registers, watches ``nodes/<node>/``, and runs a worker for each group.

The order at the start is the fence: first the OS locks, then what an earlier life left locked is unlocked (unless its
COMMIT had begun), and only then is etcd asked anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.codec import VERSION
from ledger.etcd import EtcdClient
from ledger.keys import Keys, check_name
from ledger.records import Agent, Device, GroupEpoch, Process, Processes
from ledger.release import release
from ledger.view import Changes, LedgerView
from nodeagent import procfs
from nodeagent.backends.base import BackendError
from nodeagent.backends.driven import DrivenBackend
from nodeagent.backends.drivers import DriverChoice
from nodeagent.flocks import DeviceLocks
from nodeagent.helpers import HelperPool
from nodeagent.hostmemory import HostMemory, MachineMemory
from nodeagent.journal import Journal
from nodeagent.picture import Picture
from nodeagent.registration import Registration
from nodeagent.store import NodeStore
from nodeagent.switch import Switch
from nodeagent.worker import Worker

_log = logging.getLogger(__name__)

_DEVICES_WITHIN = 60.0
_VIEW_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What an agent is told at its start.

    Attributes:
        open_store: a client of etcd and the names of the keys, made in the agent's event loop.
        state_dir: of this node alone, kept over restarts: the journal and the devices' lock files.
        baseline_bytes: what a device without any process may have in use.
        ttl: of its registration, seconds.
        address: of its NodeAgent service; empty: none.
    """

    node: str
    open_store: Callable[[], tuple[EtcdClient, Keys]]
    driver: DriverChoice
    state_dir: Path
    baseline_bytes: int = 0
    memory: HostMemory = field(default_factory=MachineMemory)
    ttl: int = 10
    address: str = ""

    def __post_init__(self) -> None:
        check_name("node", self.node)


class NodeAgent:
    """The running agent: has the OS locks, a journal, a backend and a client of etcd. Made by `run_agent`.

    Attributes:
        workers: one for each group that the ledger tells this node about.
        picture: what the ledger tells it.
    """

    def __init__(
        self,
        config: AgentConfig,
        devices: Sequence[Device],
        journal: Journal,
        backend: DrivenBackend,
        client: EtcdClient,
        keys: Keys,
    ) -> None:
        self.config, self.devices, self.backend = config, devices, backend
        self.workers: dict[str, Worker] = {}
        self.picture = Picture(keys, config.node, backend.living.among)
        self._journal = journal
        self._store = NodeStore(client, keys, config.node)
        self._view = LedgerView(client, keys.node(config.node), self._take)
        self.registration = Registration(
            client,
            keys.agent(config.node),
            config.node,
            journal,
            self._record,
            self._all_changed,
            ttl=config.ttl,
        )
        # Nodes do not look all at the same moment.
        self._tick = zlib.crc32(config.node.encode()) % 1000 / 1000
        self._warm: dict[str, tuple[Process, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(self, stop: asyncio.Event) -> None:
        """Obey until ``stop`` is set; then end the driver calls in flight and deregister. Raises CannotKill."""
        if not await _unless(stop, self.registration.revoke_old()):
            return
        self._spawn(self._start_view())
        self._spawn(self.registration.run())
        self._spawn(_set(stop, self._failed))
        try:
            await self._failed
        finally:
            await _end(self._tasks)
            await self._view.close()
            # Registered until nothing of this agent is in the driver any more.
            await self.backend.close()
            await self.registration.close()

    # ------------------------------------------------------------------------------- what workers need of it

    @property
    def incarnation(self) -> int:
        return self.registration.incarnation

    async def reached(self, revision: int, within: float) -> None:
        await self._view.reached(revision, within)

    # ---------------------------------------------------------------------------- what its service needs of it

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def informed(self) -> bool:
        """Whether the ledger has been read at all since the start."""
        return self._view.revision > 0

    def owners(self) -> Mapping[str, str]:
        """For each device that a group has, that group."""
        return self.picture.owners

    def recorded(self) -> Mapping[str, Processes]:
        """The process records of all groups on this node."""
        return self.picture.recorded()

    # ----------------------------------------------------------------------------------------------- inside

    def _take(self, changes: Changes) -> None:
        """The ledger has changed: tell those whom it concerns."""
        groups, other_owners = self.picture.take(changes.changes)
        for group in groups - self.workers.keys():
            self._begin(group)
        # Which devices are another group's concerns them all.
        for group in self.workers if other_owners else groups:
            self.workers[group].changed()
        registered = self.picture.registration()
        create = registered.create if registered else 0
        self.registration.seen(create, changes.revision, restarted=changes.restarted)

    def _begin(self, group: str) -> None:
        switch = Switch(group, self.backend, self._journal, self.config.memory)
        worker = Worker(group, switch, self._journal, self._store, self, self._keep_warm, tick=self._tick)
        self.workers[group] = worker
        self._spawn(self._serve(group))

    async def _serve(self, group: str) -> None:
        await self.workers[group].run()
        del self.workers[group]
        self._warm.pop(group, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside the others. Its failure ends the agent; its end does not."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) and not self._failed.done():
                self._failed.set_exception(error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _start_view(self) -> None:
        try:
            await self._view.start(within=_VIEW_WITHIN)
        except TimeoutError:
            _log.warning("etcd has not answered within %.0f s; trying on.", _VIEW_WITHIN)

    def _all_changed(self) -> None:
        for worker in self.workers.values():
            worker.changed()

    def _keep_warm(self, group: str, processes: tuple[Process, ...]) -> None:
        if self._warm.get(group) != processes:
            self._warm[group] = processes
            self._spawn(self.backend.keep_warm(processes))

    def _record(self) -> Agent:
        groups = self._journal.state.groups.items()
        return Agent(
            version=VERSION,
            boot_id=procfs.boot_id(),
            address=self.config.address,
            capabilities=(_capability(self.backend),),
            devices=tuple(self.devices),
            host_memory_bytes=self.config.memory.total(),
            highest=tuple(GroupEpoch(name, one.highest) for name, one in sorted(groups)),
            release=release(),
            parked_means_stopped=self.backend.parked_means_stopped,
        )


def _capability(backend: DrivenBackend) -> str:
    return f"{backend.name} not ready: {backend.unready}" if backend.unready else backend.name


async def run_agent(
    config: AgentConfig,
    stop: asyncio.Event,
    beside: Callable[[NodeAgent], contextlib.AbstractAsyncContextManager[None]],
) -> None:
    """Take the OS locks, put right what an earlier life left, and work until ``stop`` is set.

    Args:
        beside: entered while the agent works, such as a server that shows its state.

    Raises JournalCorrupt, JournalUnwritable, CannotKill and `nodeagent.backends.base.BackendError` (no devices).
    """
    async with contextlib.AsyncExitStack() as stack:
        unready, devices = await _survey(config)
        locks = DeviceLocks(config.state_dir / "locks", (one.uuid for one in devices))
        stack.callback(locks.close)
        if not await _unless(stop, locks.acquire()):
            return
        journal = Journal(config.state_dir / "journal")
        stack.callback(journal.close)
        backend = _backend(config, locks.fds, unready)
        stack.push_async_callback(backend.close)
        if not unready:
            await unlock_left(config, journal, backend)
        client, keys = config.open_store()
        await stack.enter_async_context(client)
        agent = NodeAgent(config, devices, journal, backend, client, keys)
        await stack.enter_async_context(beside(agent))
        await agent.work(stop)


async def _survey(config: AgentConfig) -> tuple[str, Sequence[Device]]:
    """Why this node cannot do it, and its devices, before their locks can be taken: asking changes nothing."""
    backend = _backend(config, ())
    try:
        await backend.examine(within=_DEVICES_WITHIN)
        if backend.unready:
            _log.error("%s is not ready on this node: %s. Every switch is refused.", backend.name, backend.unready)
        try:
            return backend.unready, await backend.devices(within=_DEVICES_WITHIN)
        except BackendError:
            if not backend.unready:
                raise
            return backend.unready, ()
    finally:
        await backend.close()


def _backend(config: AgentConfig, lock_fds: Sequence[int], unready: str = "") -> DrivenBackend:
    pool = HelperPool(config.driver, lock_fds)
    return DrivenBackend(config.driver.name, pool, baseline_bytes=config.baseline_bytes, unready=unready)


async def unlock_left(config: AgentConfig, journal: Journal, backend: DrivenBackend) -> None:
    """Unlock at once what an earlier life locked, where no COMMIT had begun (rule 15)."""
    for group, state in journal.state.groups.items():
        if state.begun is not None:
            _log.warning("Group %s: the COMMIT of epoch %d is to be finished.", group, state.begun.epoch)
        elif state.locked:
            await Switch(group, backend, journal, config.memory).unlock_prepared()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do ``work``, unless told to stop before it is done. Says whether it was done."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        await _end({task, stopped})


async def _set(stop: asyncio.Event, future: asyncio.Future[None]) -> None:
    await stop.wait()
    if not future.done():
        future.set_result(None)


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
