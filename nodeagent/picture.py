# SPDX-License-Identifier: Apache-2.0
"""What the ledger says of this node, group by group, kept current change by change. No input or output.

What one group is asked for costs the same however many others the node has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from ledger.errors import LedgerError
from ledger.index import Index
from ledger.kept import Kept
from ledger.keys import Keys, Kind
from ledger.records import Ack, Agent, Directive, Process, Processes
from ledger.view import Change
from nodeagent import plan
from nodeagent.backends.base import Known


class Seen(Struct, frozen=True):
    """What the ledger says of one group on this node.

    Attributes:
        devices: claimed for the group.
        known: processes by job, registered or recorded.
        registered: those of them that a client registered.
        errors: records that cannot be read.
    """

    directive: Kept[Directive] | None
    ack: Kept[Ack] | None
    processes: Kept[Processes] | None
    devices: tuple[str, ...]
    known: Known
    registered: frozenset[Process]
    errors: tuple[LedgerError, ...] = ()

    @property
    def records(self) -> Processes:
        return self.processes.value if self.processes else Processes()

    @property
    def nothing(self) -> bool:
        """The ledger says nothing of the group on this node any more."""
        there = (self.directive, self.ack, self.processes, self.devices, self.known, self.errors)
        return not any(there)

    def answer(self) -> Ack | None:
        """The acknowledgement of the directive in force, if there is one."""
        if self.directive and self.ack and self.ack.value.directive_revision == self.directive.mod:
            return self.ack.value
        return None


class Picture:
    """Of one node.

    Attributes:
        owners: for each device that a group has, that group: by its claim, or by a directive that names it.

    Args:
        among: those of some processes that are alive.
    """

    def __init__(self, keys: Keys, node: str, among: Callable[[Iterable[Process]], Iterable[Process]]) -> None:
        self.owners: Mapping[str, str] = {}
        self._among = among
        self._index, self._node = Index(keys), node
        self._devices: Mapping[str, tuple[str, ...]] = {}
        self._registered: dict[str, Mapping[str, tuple[Process, ...]]] = {}

    def take(self, changes: Iterable[Change]) -> tuple[frozenset[str], bool]:
        """Take changes in. Returns the groups that they name, and whether a device has another owner now."""
        groups: set[str] = set()
        registered: set[str] = set()
        owners = False
        for change in changes:
            place = self._index.put(change.kv) if change.kv else self._index.delete(change.key)
            if place is None:
                continue
            if place.group:
                groups.add(place.group)
            match place.kind:
                case Kind.CLAIM:
                    claim = self._index.claims.get(self._node, {}).get(place.name)
                    groups.update((claim.value.group,) if claim else ())
                    owners = True
                case Kind.DIRECTIVE:
                    told = self._told(place.group)
                    named = set(told.value.devices) if told else set()
                    # As a rule a directive names what the group has already.
                    owners = owners or named != set(self._devices.get(place.group, ()))
                case Kind.REGISTERED:
                    registered.add(place.group)
                case _:
                    pass
        self._sort_registered(registered)
        return frozenset(groups), owners and self._find_owners()

    def seen(self, group: str) -> Seen:
        """The group now."""
        index, node = self._index, self._node
        recorded = index.processes.get(node, {}).get(group)
        registered = self._registered.get(group, {})
        known: dict[str, list[Process]] = {job: list(processes) for job, processes in registered.items()}
        for one in recorded.value.jobs if recorded else ():
            known.setdefault(one.job, []).extend(each.process for each in one.processes if each.process)
        return Seen(
            directive=self._told(group),
            ack=index.acks.get(node, {}).get(group),
            processes=recorded,
            devices=self._devices.get(group, ()),
            known=known,
            registered=frozenset(one for processes in registered.values() for one in processes),
            errors=() if index.sound else tuple(error for _, error in index.errors(group=group)),
        )

    def directive(self, group: str) -> int:
        """Mod revision of the group's directive; 0: there is none."""
        told = self._told(group)
        return told.mod if told else 0

    def foreign(self, group: str) -> frozenset[str]:
        """The node's devices that other groups have."""
        return frozenset(self.owners).difference(self._devices.get(group, ()))

    def recorded(self) -> Mapping[str, Processes]:
        """The process records of all groups."""
        return {group: one.value for group, one in self._index.processes.get(self._node, {}).items()}

    def parked(self) -> int:
        """Host bytes of the parked processes of all groups."""
        return plan.parked_bytes(self.recorded().values(), self._among)

    def registration(self) -> Kept[Agent] | None:
        """Of the node's agent."""
        return self._index.agents.get(self._node)

    def _told(self, group: str) -> Kept[Directive] | None:
        return self._index.directives.get(self._node, {}).get(group)

    def _find_owners(self) -> bool:
        """Returns whether they are others than before."""
        index, before = self._index, self.owners
        owners = {device: one.value.group for device, one in index.claims.get(self._node, {}).items()}
        for group, told in index.directives.get(self._node, {}).items():
            owners.update((device, group) for device in told.value.devices)
        if owners == before:
            return False
        devices: defaultdict[str, list[str]] = defaultdict(list)
        for device, group in sorted(owners.items()):
            devices[group].append(device)
        self.owners, self._devices = owners, {group: tuple(some) for group, some in devices.items()}
        return True

    def _sort_registered(self, groups: Collection[str]) -> None:
        """Registrations come by key, and are asked for by group."""
        if not groups:
            return
        fresh: dict[str, dict[str, tuple[Process, ...]]] = {group: {} for group in groups}
        for (group, job), one in self._index.registered.get(self._node, {}).items():
            if group in fresh:
                fresh[group][job] = one.value.processes
        for group, jobs in fresh.items():
            if jobs:
                self._registered[group] = jobs
            else:
                self._registered.pop(group, None)
