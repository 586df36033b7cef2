# SPDX-License-Identifier: Apache-2.0
"""Records that are written as a whole, whatever they said before: but never over one that cannot be read (rule 32)."""

from __future__ import annotations

from coordinator.apply.errors import Conflict
from ledger.codec import decode
from ledger.etcd import EtcdClient
from ledger.etcd.txn import Compare, Delete, Put, absent, modified_at

ATTEMPTS = 10


async def write_over(client: EtcdClient, op: Put | Delete, record: type[object], *compares: Compare) -> int | None:
    """Put or delete one key, of which ``record`` is the form. Returns the revision; None if a compare does not hold.

    Raises:
        LedgerError: what is there cannot be read; it is left as it is.
        Conflict: others wrote it again and again.
        EtcdError: etcd did not carry it out.
    """
    seen = -1
    for _ in range(ATTEMPTS):
        kv = await client.get(op.key)
        if kv is not None:
            decode(record, kv.value)
        there = kv.mod_revision if kv is not None else 0
        if there == seen:
            return None  # the key has not changed since the last attempt, so it is not what stood in the way
        seen = there
        guard = modified_at(op.key, there) if there else absent(op.key)
        done = await client.txn([guard, *compares], [op])
        if done.succeeded:
            return done.revision
    raise Conflict("Others wrote the same record again and again.")
