# SPDX-License-Identifier: Apache-2.0
"""A step of the floor as a transaction: real guards, fresh JSON, the values as they were seen."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bench.floor.script import Step
from ledger.etcd import EtcdClient
from ledger.etcd.txn import Compare, Delete, Op, Put

PREFIX = "/floor/"


class GuardLost(Exception):
    """A guard of the floor failed. Nobody competes in it, so it is broken."""


def keys(step: Step, names: Mapping[str, str]) -> tuple[bytes, ...]:
    """The step's keys, with ``names`` for ``{group}`` and the like."""
    return tuple(f"{PREFIX}{write.key.format_map(names)}".encode() for write in step.writes)


async def write(
    client: EtcdClient, step: Step, names: Mapping[str, str], compares: list[Compare], reads: list[Op], lease: int = 0
) -> int:
    """Carry it out; its revision.

    Args:
        compares: its guards.
        reads: what etcd is to read where a guard fails.
        lease: for leased keys that are not there yet; 0: they keep theirs.

    Raises GuardLost, EtcdError.
    """
    ops: list[Op] = []
    for key, one in zip(keys(step, names), step.writes, strict=True):
        if one.value is None:
            ops.append(Delete(key))
            continue
        value = json.dumps(one.value, separators=(",", ":"), ensure_ascii=False).encode()
        ops.append(Put(key, value, lease if one.leased else 0, ignore_lease=one.leased and not lease))
    result = await client.txn(compares, ops, reads)
    if not result.succeeded:
        raise GuardLost(f"{names}: {compares}")
    return result.revision
