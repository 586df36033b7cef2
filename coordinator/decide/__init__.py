# SPDX-License-Identifier: Apache-2.0
"""The decision core: a view of one group in, at most one decision out. No input, no output, no clock."""

from coordinator.decide.core import decide
from coordinator.decide.decision import Decision, Grant, Refuse, Remove, Verdict, Wait, WaitKind
from coordinator.decide.view import GroupView, NodeState

__all__ = [
    "Decision",
    "Grant",
    "GroupView",
    "NodeState",
    "Refuse",
    "Remove",
    "Verdict",
    "Wait",
    "WaitKind",
    "decide",
]
