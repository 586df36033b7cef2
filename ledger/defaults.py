# SPDX-License-Identifier: Apache-2.0
"""What a duration of 0 in a record stands for. All in milliseconds."""

from __future__ import annotations

from ledger.records import Policy

PREPARE_MS = 30_000
COMMIT_MS = 600_000
LOST_GRACE_MS = 10_000
PARKED_TTL_MS = 3_600_000
DROP_AFTER_MS = 60_000
SESSION_TTL_MS = 10_000
SESSION_TTL_MIN_MS = 2_000
SESSION_TTL_MAX_MS = 600_000


def prepare_ms(policy: Policy | None) -> int:
    return (policy and policy.prepare_ms) or PREPARE_MS


def commit_ms(policy: Policy | None) -> int:
    return (policy and policy.commit_ms) or COMMIT_MS


def lost_grace_ms(policy: Policy | None) -> int:
    return (policy and policy.lost_grace_ms) or LOST_GRACE_MS


def parked_ttl_ms(policy: Policy | None) -> int:
    return (policy and policy.parked_ttl_ms) or PARKED_TTL_MS


def drop_after_ms(policy: Policy | None) -> int:
    return (policy and policy.drop_after_ms) or DROP_AFTER_MS
