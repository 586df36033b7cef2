# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the ledger's own content. Errors of etcd itself are in `ledger.etcd.errors`."""

from __future__ import annotations


class LedgerError(Exception):
    """Base of all errors about what is, or was to be, in the ledger.

    Attributes:
        reason: the reason of docs/errors.md, in capitals.
        next_step: what the reader can do about it.
    """

    reason = "LEDGER_ERROR"
    next_step = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} {self.next_step}".rstrip()


class BadName(LedgerError):
    """A group, job, node or device name that is none."""

    reason = "BAD_NAME"

    def __init__(self, kind: str, name: str) -> None:
        shown = name if len(name) <= 80 else name[:77] + "..."
        super().__init__(f"{shown!r} is no name for a {kind}.")
        self.kind, self.name = kind, name
        self.next_step = (
            "A device is named by its UUID."
            if kind == "device"
            else "Use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit."
        )


class RecordMalformed(LedgerError):
    """A value in etcd that is not the JSON form of its record. It is never overwritten."""

    reason = "RECORD_MALFORMED"
    next_step = "Look at it with `etcdctl get`, then run `timeslice repair`."

    def __init__(self, record: str, why: str) -> None:
        super().__init__(f"A {record} record cannot be read: {why}.")
        self.record, self.why = record, why


class RecordTooNew(LedgerError):
    """A record of a later version than this program can write: it stands by."""

    reason = "RECORD_TOO_NEW"
    next_step = "Upgrade this program; until then the newer ones do its work."

    def __init__(self, record: str, version: int) -> None:
        super().__init__(f"A {record} record has version {version}, newer than this program's.")
        self.record, self.version = record, version
