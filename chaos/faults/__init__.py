# SPDX-License-Identifier: Apache-2.0
"""What can be done to a world: each fault is a small object, and what it has done can be undone."""

from __future__ import annotations

from chaos.faults.fault import Fault, Harm, NotPossible, Party

__all__ = ["Fault", "Harm", "NotPossible", "Party"]
