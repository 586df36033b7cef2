# SPDX-License-Identifier: Apache-2.0
"""The NodeAgent service: the agent by itself."""

from __future__ import annotations

from nodeagent.agent import NodeAgent


async def serving(agent: NodeAgent) -> None:
    pass
