# SPDX-License-Identifier: Apache-2.0
"""Why a request could not be carried out, although nothing is wrong with it."""

from __future__ import annotations


class EngineError(Exception):
    """Attributes: reason: one of docs/errors.md."""

    reason = "INTERNAL"


class EngineUnavailable(EngineError):
    """etcd does not answer in time. Whether the write was applied shows when it does: every command can be repeated."""

    reason = "STORE_UNAVAILABLE"


class EngineBehind(EngineError):
    """This replica's view of etcd is not live: another replica may do better."""

    reason = "REPLICA_BEHIND"


class Conflict(EngineError):
    """Others changed the same group again and again for as long as the request was allowed to last."""

    reason = "CONFLICT"
