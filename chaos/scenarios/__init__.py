# SPDX-License-Identifier: Apache-2.0
"""Scenarios: something is harmed at a random moment, and the promises are judged by what is left as evidence."""

from __future__ import annotations

from chaos.scenarios.failover import FAILOVER, FAILOVER_FROZEN
from chaos.scenarios.holder import FREEZE_HOLDER, KILL_HOLDER
from chaos.scenarios.leaders import LEADER_CHANGES
from chaos.scenarios.midswitch import KILL_AGENT, KILL_ETCD_LEADER, KILL_HELPER, KILL_REPLICA, STOP_REPLICA
from chaos.scenarios.mixed import MIXED
from chaos.scenarios.points import FAILPOINTS
from chaos.scenarios.refusing import REFUSING_NODE
from chaos.scenarios.rolling import ROLLING_RESTART
from chaos.scenarios.scenario import Report, Scenario
from chaos.scenarios.sessions import SESSIONS
from chaos.scenarios.several import SEVERAL_GROUPS
from chaos.scenarios.waiter import CANCEL_WAITER

ALL: tuple[Scenario, ...] = (
    KILL_REPLICA,
    KILL_AGENT,
    KILL_HELPER,
    KILL_ETCD_LEADER,
    STOP_REPLICA,
    KILL_HOLDER,
    FREEZE_HOLDER,
    CANCEL_WAITER,
    REFUSING_NODE,
    SEVERAL_GROUPS,
    MIXED,
    FAILPOINTS,
    FAILOVER,
    FAILOVER_FROZEN,
    ROLLING_RESTART,
    LEADER_CHANGES,
    SESSIONS,
)

__all__ = ["ALL", "Report", "Scenario"]
