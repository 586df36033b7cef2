# SPDX-License-Identifier: Apache-2.0
"""What the agent reads from and writes into the ledger, each write with its guards. All is under ``nodes/<node>/``."""

from __future__ import annotations

from enum import Enum

from ledger.codec import decode, encode
from ledger.etcd import EtcdClient, GroupCommit, KeyValue, RangeResult
from ledger.etcd.txn import Compare, Get, Op, Put, absent, created_at, modified_at
from ledger.keys import Keys
from ledger.records import Ack, Processes


class Written(Enum):
    """What has become of a guarded write."""

    DONE = "done"
    DIRECTIVE_CHANGED = "another directive has taken its place"
    NOT_REGISTERED = "this incarnation is not registered any more"
    ALREADY_ANSWERED = "the directive has an answer"
    RECORD_CHANGED = "the record is not the one that was seen"


class NodeStore:
    """The ledger, as one node sees it. Raises `ledger.etcd.errors.EtcdError`."""

    def __init__(self, client: EtcdClient, keys: Keys, node: str) -> None:
        self.client, self.keys, self.node = client, keys, node
        self._commit = GroupCommit(client)

    async def in_force(self, group: str, directive: int) -> bool:
        """Whether the directive of this mod revision still is the group's: a linearizable read."""
        found = await self.client.get(self.keys.directive(self.node, group))
        return found is not None and found.mod_revision == directive

    async def acknowledge(
        self, group: str, ack: Ack, processes: Processes | None, ack_revision: int
    ) -> tuple[Written, int]:
        """Answer a directive, for good (rule 7), with the process record in the same transaction (rule 9).

        Args:
            ack_revision: mod revision of the answer that is there, which is to another directive; 0: none.

        Returns what has become of it, and the revision of the answer that is there; 0: none is.
        """
        key = self.keys.ack(self.node, group)
        guards = [*self._guards(group, ack.directive_revision, ack.incarnation), _seen(key, ack_revision)]
        puts: list[Op] = [Put(key, encode(ack))]
        if processes is not None:
            puts.append(Put(self.keys.processes(self.node, group), encode(processes)))
        reads = [Get(key), Get(self.keys.directive(self.node, group)), Get(self.keys.agent(self.node))]
        # Sent twice it does no harm: the second finds the first's answer, and that is read.
        result = await self._commit.txn(guards, puts, reads, idempotent=True)
        if result.succeeded:
            return Written.DONE, result.revision
        answered, directive, agent = (_only(one) for one in result.responses)
        if answered is not None:
            there = decode(Ack, answered.value)
            if there.directive_revision == ack.directive_revision:
                same = there.incarnation == ack.incarnation and there.outcome is ack.outcome
                return (Written.DONE if same else Written.ALREADY_ANSWERED), answered.mod_revision
        return _why(ack.directive_revision, ack.incarnation, directive, agent), 0

    async def record(
        self, group: str, processes: Processes, *, directive: int, incarnation: int, seen: int
    ) -> tuple[Written, int]:
        """Put the process record. ``directive`` and ``seen`` (the record that is there): mod revisions; 0: none.

        Done, it says as much as a linearizable read of the directive: that it was in force then.
        """
        key = self.keys.processes(self.node, group)
        guards = [*self._guards(group, directive, incarnation), _seen(key, seen)]
        reads = [Get(key), Get(self.keys.directive(self.node, group)), Get(self.keys.agent(self.node))]
        value = encode(processes)
        result = await self._commit.txn(guards, [Put(key, value)], reads, idempotent=True)
        if result.succeeded:
            return Written.DONE, result.revision
        there, told, agent = (_only(one) for one in result.responses)
        why = _why(directive, incarnation, told, agent)
        if why is Written.RECORD_CHANGED and there is not None and there.value == value:
            return Written.DONE, there.mod_revision
        return why, 0

    def _guards(self, group: str, directive: int, incarnation: int) -> list[Compare]:
        told = self.keys.directive(self.node, group)
        return [_seen(told, directive), created_at(self.keys.agent(self.node), incarnation)]


def _seen(key: bytes, revision: int) -> Compare:
    return modified_at(key, revision) if revision else absent(key)


def _only(response: object) -> KeyValue | None:
    assert isinstance(response, RangeResult)
    return response.kvs[0] if response.kvs else None


def _why(directive: int, incarnation: int, told: KeyValue | None, agent: KeyValue | None) -> Written:
    if agent is None or agent.create_revision != incarnation:
        return Written.NOT_REGISTERED
    if (told.mod_revision if told else 0) != directive:
        return Written.DIRECTIVE_CHANGED
    return Written.RECORD_CHANGED
