# SPDX-License-Identifier: Apache-2.0
"""Kinds of faults that users of such systems have reported, row by row of docs/failures.md."""

from __future__ import annotations

from tests.coordinator.serve.conftest import world
from tests.coordinator.serve.process import coordinator_process
from tests.nodeagent.conftest import boss, node

__all__ = ["boss", "coordinator_process", "node", "world"]
