# SPDX-License-Identifier: Apache-2.0
"""What a replica knows of the ledger, by group, node and session. No input or output of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from coordinator.decide import GroupView, NodeState, Wait
from ledger.errors import LedgerError
from ledger.index import Index
from ledger.kept import Kept
from ledger.keys import Keys, Kind, Place
from ledger.queue import Queue
from ledger.records import Agent, Claim, Compaction, Drain, GroupSpec, Replica, Session, Ticket, Turn
from ledger.view import Changes


class Picture:
    """The ledger as a replica sees it, at ``revision``.

    Attributes:
        notes: for each group one sentence on where it stands, from its last verdict.
    """

    def __init__(self, keys: Keys, is_live: Callable[[], bool] = lambda: True) -> None:
        self.revision = 0
        self._is_live = is_live
        self.notes: dict[str, str] = {}
        self._keys = keys
        self._index = Index(keys)
        self._groups_of: defaultdict[str, set[str]] = defaultdict(set)  # by node
        self._nodes_of: dict[str, frozenset[str]] = {}  # by group
        self._claim_nodes: defaultdict[str, set[str]] = defaultdict(set)  # by group
        self._claimed_on: dict[str, frozenset[str]] = {}  # by node: the groups that have claims there
        self._states: dict[str, Mapping[str, NodeState]] = {}  # by group, then node; never changed in place
        self._stale: defaultdict[str, set[str]] = defaultdict(set)  # by group: the nodes whose state has changed since
        self._tickets_of: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # by session: (group, job)
        self._session_of: dict[tuple[str, str], str] = {}  # by (group, job)

    @property
    def live(self) -> bool:
        """The picture is current, as far as this process can know."""
        return self._is_live()

    def take(self, changes: Changes) -> tuple[frozenset[str], frozenset[str]]:
        """Take in what has changed. Returns the groups and the sessions that it touches."""
        self.revision = changes.revision
        groups: set[str] = set()
        sessions: set[str] = set()
        for change in changes.changes:
            place = self._index.delete(change.key) if change.kv is None else self._index.put(change.kv)
            if place is not None:
                self._note(place, groups, sessions)
        for group in [group for group in groups if group not in self._index.specs]:
            for kept in (self.notes, self._states, self._stale):
                kept.pop(group, None)
        return frozenset(groups), frozenset(sessions)

    def group(self, name: str, passed: frozenset[Wait] = frozenset()) -> GroupView | None:
        """The group as `decide` sees it; None if there is nothing of it, not even a ticket."""
        index = self._index
        spec, turn, queue = index.specs.get(name), index.turns.get(name), index.queue(name)
        if spec is None and turn is None and not queue:
            return None
        return GroupView(
            name=name,
            revision=self.revision,
            spec=spec,
            turn=turn,
            tickets=queue,
            nodes=self._node_states(name),
            jobs=dict(index.jobs.get(name, {})),
            passed=passed,
        )

    def group_names(self) -> list[str]:
        return sorted(self._index.specs.keys() | self._index.turns.keys())

    def group_error(self, name: str) -> LedgerError | None:
        """A record of the group, or of its nodes and devices, that cannot be read: nothing is written for the group."""
        if self._index.sound:
            return None
        found = [error for _, error in self._index.errors(group=name)]
        devices = self._devices_of(name)
        for node in sorted(self._nodes_of.get(name, ())):
            for place, error in self._index.errors(node=node):
                if place.kind is not Kind.CLAIM or (node, place.name) in devices:
                    found.append(error)
        return found[0] if found else None

    def _devices_of(self, group: str) -> set[tuple[str, str]]:
        """The devices that the group wants or was last told to use."""
        spec = self._index.specs.get(group)
        devices = {(one.node, device) for one in spec.value.nodes for device in one.devices} if spec else set()
        for node in self._nodes_of.get(group, ()):
            directive = self._index.directives.get(node, {}).get(group)
            devices |= {(node, device) for device in directive.value.devices} if directive else set()
        return devices

    def spec(self, group: str) -> Kept[GroupSpec] | None:
        return self._index.specs.get(group)

    def turn(self, group: str) -> Kept[Turn] | None:
        return self._index.turns.get(group)

    def queue(self, group: str) -> Queue:
        return self._index.queue(group)

    def note(self, group: str) -> str:
        return self.notes.get(group, "")

    def session(self, session: str) -> Kept[Session] | None:
        return self._index.sessions.get(session)

    def session_names(self) -> frozenset[str]:
        return frozenset(self._index.sessions)

    def compaction(self) -> Kept[Compaction] | None:
        return self._index.compaction

    def session_error(self, session: str) -> LedgerError | None:
        """Why the session's record cannot be read, where it is there but `session` has none."""
        return self._error(Place(Kind.SESSION, name=session))

    def compaction_error(self) -> LedgerError | None:
        return self._error(Place(Kind.COMPACTION))

    def _error(self, wanted: Place) -> LedgerError | None:
        return next((error for place, error in self._index.errors() if place == wanted), None)

    def tickets_of(self, session: str) -> list[tuple[str, Kept[Ticket]]]:
        """The tickets of a session, each with its group."""
        found = []
        for group, job in sorted(self._tickets_of.get(session, ())):
            ticket = self._index.queue(group).get(job)
            if ticket is not None:
                found.append((group, ticket))
        return found

    def nodes(self) -> Mapping[str, Kept[Agent] | None]:
        """Every node that is known, with its agent or None while that is away."""
        index = self._index
        names = index.agents.keys() | index.claims.keys() | index.drains.keys() | self._groups_of.keys()
        return {node: index.agents.get(node) for node in sorted(names)}

    def servers(self) -> Mapping[tuple[str, str], Sequence[str]]:
        """By boot id and device, the nodes whose agents serve it: more than one where a machine has two agents."""
        found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for node, agent in sorted(self._index.agents.items()):
            if agent.value.boot_id:
                for device in agent.value.devices:
                    found[agent.value.boot_id, device.uuid].append(node)
        return found

    def drain(self, node: str) -> Kept[Drain] | None:
        return self._index.drains.get(node)

    def claims(self, node: str) -> Mapping[str, Kept[Claim]]:
        return self._index.claims.get(node, {})

    def replicas(self) -> Mapping[str, Kept[Replica]]:
        return self._index.replicas

    def _node_states(self, group: str) -> Mapping[str, NodeState]:
        """The nodes of a group. Of many, only those that have changed since the last time are looked at."""
        nodes, states = self._nodes_of.get(group, frozenset()), self._states.get(group)
        stale = self._stale.pop(group, ())
        if states is None:
            states = {node: self._node_state(node, group) for node in nodes}
        elif stale:
            states = {**states, **{node: self._node_state(node, group) for node in stale if node in nodes}}
        self._states[group] = states
        return states

    def _node_state(self, node: str, group: str) -> NodeState:
        index = self._index
        return NodeState(
            agent=index.agents.get(node),
            directive=index.directives.get(node, {}).get(group),
            ack=index.acks.get(node, {}).get(group),
            processes=index.processes.get(node, {}).get(group),
            claims=index.claims.get(node, {}),
            draining=node in index.drains,
        )

    def _note(self, place: Place, groups: set[str], sessions: set[str]) -> None:
        if place.group:
            groups.add(place.group)
            if place.node:
                self._stale[place.group].add(place.node)
        match place.kind:
            case Kind.SPEC | Kind.TURN:
                self._place_group(place.group)
            case Kind.CLAIM:
                groups |= self._claimed_anew(place.node)
                groups |= self._all_on(place.node)
            case Kind.AGENT | Kind.DRAIN:
                groups |= self._all_on(place.node)
            case Kind.SESSION:
                sessions.add(place.name)
            case Kind.TICKET:
                sessions |= self._place_ticket(place.group, place.name)
            case _:
                pass

    def _all_on(self, node: str) -> set[str]:
        """The groups of a node, all of which its change is about."""
        groups = self._groups_of.get(node, set())
        for group in groups:
            self._stale[group].add(node)
        return groups

    def _place_group(self, group: str) -> None:
        spec, turn = self._index.specs.get(group), self._index.turns.get(group)
        nodes: set[str] = set(self._claim_nodes.get(group, ()))
        if spec is not None:
            nodes.update(one.node for one in spec.value.nodes)
        if turn is not None:
            nodes.update(turn.value.nodes)
        if nodes == self._nodes_of.get(group, frozenset()):
            return
        self._states.pop(group, None)
        self._stale.pop(group, None)
        for node in self._nodes_of.pop(group, frozenset()):
            self._groups_of[node].discard(group)
            if not self._groups_of[node]:
                del self._groups_of[node]
        if nodes:
            self._nodes_of[group] = frozenset(nodes)
            for node in nodes:
                self._groups_of[node].add(group)

    def _claimed_anew(self, node: str) -> frozenset[str]:
        """The node's claims have changed: find out again which groups have some there."""
        now = frozenset(claim.value.group for claim in self._index.claims.get(node, {}).values())
        before = self._claimed_on.pop(node, frozenset())
        if now:
            self._claimed_on[node] = now
        for group in before - now:
            self._claim_nodes[group].discard(node)
            if not self._claim_nodes[group]:
                del self._claim_nodes[group]
        for group in now - before:
            self._claim_nodes[group].add(node)
        changed = before ^ now
        for group in changed:
            self._place_group(group)
        return changed

    def _place_ticket(self, group: str, job: str) -> set[str]:
        """Returns the sessions whose ticket this was or is."""
        at = (group, job)
        ticket = self._index.queue(group).get(job)
        before, now = self._session_of.pop(at, None), ticket.value.session if ticket else None
        if before is not None and before != now:
            self._tickets_of[before].discard(at)
            if not self._tickets_of[before]:
                del self._tickets_of[before]
        if now is not None:
            self._session_of[at] = now
            self._tickets_of[now].add(at)
        return {one for one in (before, now) if one is not None}
