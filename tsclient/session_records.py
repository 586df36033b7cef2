# SPDX-License-Identifier: Apache-2.0
"""What comes out of the session's state machine, beside the news."""

from __future__ import annotations

from dataclasses import dataclass

from timeslice_proto.v1 import coordinator_pb2
from tsclient import news


@dataclass(frozen=True, slots=True)
class Send:
    """To be written to the present stream, in order."""

    request: coordinator_pb2.SessionRequest


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the present stream and make another, on another replica if there is one."""

    why: str


Output = Send | HangUp | news.Opened | news.Ended | news.OfOne
