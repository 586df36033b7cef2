# SPDX-License-Identifier: Apache-2.0
"""What the handlers of the service share."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.apply.engine import Engine
from coordinator.serve.bell import Bell
from coordinator.serve.expiry import Expiry
from coordinator.serve.registry import Registry
from coordinator.serve.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Services:
    engine: Engine
    sessions: Sessions
    registry: Registry
    bell: Bell
    expiry: Expiry

    @classmethod
    def of(cls, engine: Engine) -> Services:
        """All of them for one replica. To be made in its event loop."""
        expiry = Expiry(engine)
        return cls(engine, Sessions(engine, expiry), Registry(), Bell(engine), expiry)
