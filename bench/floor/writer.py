# SPDX-License-Identifier: Apache-2.0
"""A step of the floor as a transaction: real guards, fresh JSON, the values as they were seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bench.floor.script import Step, Write
from ledger.etcd import EtcdClient
from ledger.etcd.txn import Compare, Delete, Op, Put

PREFIX = "/floor/"


class GuardLost(Exception):
    """A guard of the floor failed. Nobody competes in it, so it is broken."""


def _writes(step: Step, names: Mapping[str, str], nodes: Sequence[str]) -> Iterator[tuple[bytes, Write]]:
    """The step's keys, with ``names`` for ``{group}`` and the like: what is a node's for each of ``nodes``."""
    for one in step.writes:
        for node in nodes if "{node}" in one.key else ("",):
            yield f"{PREFIX}{one.key.format(node=node, **names)}".encode(), one


async def write(
    client: EtcdClient,
    step: Step,
    names: Mapping[str, str],
    nodes: Sequence[str],
    compares: list[Compare],
    reads: list[Op],
    lease: int = 0,
) -> int:
    """Carry it out; its revision.

    Args:
        nodes: those of the group that its writer writes for.
        compares: its guards.
        reads: what etcd is to read where a guard fails.
        lease: for leased keys that are not there yet; 0: they keep theirs.

    Raises GuardLost, EtcdError.
    """
    ops: list[Op] = []
    for key, one in _writes(step, names, nodes):
        if one.value is None:
            ops.append(Delete(key))
            continue
        value = msgspec.json.encode(one.value)
        ops.append(Put(key, value, lease if one.leased else 0, ignore_lease=one.leased and not lease))
    result = await client.txn(compares, ops, reads)
    if not result.succeeded:
        raise GuardLost(f"{names}: {compares}")
    return result.revision
