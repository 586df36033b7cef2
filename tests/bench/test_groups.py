# SPDX-License-Identifier: Apache-2.0
"""Many groups: real agents as tasks, sessions straight over gRPC, and the floor beside them."""

from __future__ import annotations

from dataclasses import replace

from bench.floor.script import Script, Step, Write
from bench.parts import groups
from bench.settings import QUICK
from bench.system import Bench

_TURN = Write("groups/{group}/turn", {"version": "1"})
_IN, _OUT = (f"groups/{{group}}/tickets/{{{side}}}" for side in ("in", "out"))
_TOLD = Write("nodes/{node}/directives/{group}", {"version": "1"})
_ANSWER = Step((Write("nodes/{node}/acks/{group}", {"version": "1"}),), calls=1, rereads=1)
_HAND_OFF = (
    Step((_TURN, Write(_OUT, None), _TOLD)),
    _ANSWER,
    Step((_TURN, _TOLD)),
    _ANSWER,
    Step((_TURN, Write(_IN, {"version": "1"}, leased=True))),
)
_SCRIPT = Script(
    queue=Step((Write(_IN, {"version": "1"}, leased=True),)),
    free=Step((_TURN, Write(_IN, {"version": "1"}, leased=True))),
    back=Step((_TURN, Write(_OUT, None))),
    hand_off=_HAND_OFF,
    moving=_HAND_OFF,
)


def test_groups_of_the_system_and_of_the_floor_hand_off_all_the_time() -> None:
    settings = replace(QUICK, groups=(3,), windows=1, window_seconds=1.0, agent_processes=1)
    with Bench() as bench:
        found = groups.measure(bench, settings, _SCRIPT)
    system, below = found.rows
    assert (system.name, below.name) == ("system, 3 groups", "floor, 3 groups")
    for row in (system, below):
        assert row.figures["per_s"] > 0
        # A ticket, and what a hand-off takes, but the window's edges cut some in two; what waits goes as one revision.
        assert 1 < row.figures["revisions"] < 7.5
        assert {"agents_cpu_ms", "etcd_cpu_ms", "replica_cpu_ms"} <= row.figures.keys()
    assert system.figures["of_floor"] == system.figures["per_s"] / below.figures["per_s"]
