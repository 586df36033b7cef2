# SPDX-License-Identifier: Apache-2.0
"""The cases of parts a to d, by name. They are measured together, and ratios are taken across the parts."""

from __future__ import annotations

BARE, DELIVERY = "etcd: guarded transaction", "etcd: put → watch delivery"

FLOOR_ALONE = "floor: acquire + yield, uncontended"
FLOOR_HAND_OFF = "floor: hand-off"
FLOOR_MOVING = "floor: hand-off, a process each"

ETCDCTL, ETCDCTL_START = "etcdctl lock: hand-off", "etcdctl lock: start of a process, until it waits"

ALONE, ALONE_AGAIN = "acquire + yield, uncontended", "acquire + yield, uncontended (again)"
HAND_OFF, HAND_OFF_AGAIN = "hand-off", "hand-off (again)"
MOVING = "hand-off, a process each"

FLOOR_OF = {
    ALONE: FLOOR_ALONE,
    ALONE_AGAIN: FLOOR_ALONE,
    HAND_OFF: FLOOR_HAND_OFF,
    HAND_OFF_AGAIN: FLOOR_HAND_OFF,
    MOVING: FLOOR_MOVING,
}
"""Beside which case of the floor each of the system's stands."""
