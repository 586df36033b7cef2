# SPDX-License-Identifier: Apache-2.0
"""How long and how large a run is. `QUICK` is for two cores, `FULL` for sixteen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of the parts; each can be given on the command line by its name.

    Attributes:
        rounds: of each interleaved measurement.
        warm_up: rounds before the first that counts.
        seed: of the order within the rounds.
        nodes: sizes of part e.
        node_rounds: of part e, each a hand-off of every size, with and without a device's cost.
        agent_processes: in which the agents of many nodes are tasks.
        groups: numbers of part f.
        load_processes: in which the jobs' sessions of part f are.
        windows: of parts f and h, for each thing that is measured.
        window_seconds: how long each lasts.
        waiters: numbers of part g.
        ttl: seconds of their sessions; three beats in it.
        channels: over which they wait.
        quiet_seconds: of waiting while nothing moves.
        crowd_seconds: of hand-offs among them.
        replicas: numbers of part h.
        starts: rounds of part i, after one that does not count.
        duty: groups of part j: how many jobs, and the share of its time that each needs the devices for.
        duty_busy: seconds of a turn.
        duty_switch: seconds of a switch.
        duty_seconds: how long the jobs are watched.
        slow_seconds: of the switch of part k.
        slow_rounds: how many of them.
    """

    rounds: int
    warm_up: int
    nodes: tuple[int, ...]
    node_rounds: int
    agent_processes: int
    groups: tuple[int, ...]
    load_processes: int
    windows: int
    window_seconds: float
    waiters: tuple[int, ...]
    ttl: float
    channels: int
    quiet_seconds: float
    crowd_seconds: float
    replicas: tuple[int, ...]
    starts: int
    duty: tuple[tuple[int, float], ...]
    duty_busy: float
    duty_switch: float
    duty_seconds: float
    slow_seconds: float
    slow_rounds: int
    seed: int = 1


QUICK = Settings(
    rounds=60, warm_up=5,
    nodes=(1, 4, 16), node_rounds=3, agent_processes=2,
    groups=(1, 10, 50), load_processes=1, windows=2, window_seconds=2.0,
    waiters=(10, 100, 500), ttl=6.0, channels=2, quiet_seconds=4.0, crowd_seconds=4.0,
    replicas=(1, 3), starts=3,
    duty=((2, 0.4), (3, 0.3)), duty_busy=1.0, duty_switch=0.2, duty_seconds=15.0,
    slow_seconds=4.0, slow_rounds=2,
)  # fmt: skip
FULL = Settings(
    rounds=200, warm_up=10,
    nodes=(1, 4, 16, 64), node_rounds=12, agent_processes=2,
    groups=(1, 10, 100, 1000), load_processes=4, windows=2, window_seconds=3.0,
    waiters=(10, 100, 1000, 10_000), ttl=60.0, channels=8, quiet_seconds=20.0, crowd_seconds=6.0,
    replicas=(1, 3, 5), starts=5,
    duty=((2, 0.3), (2, 0.6), (3, 0.3), (3, 0.45), (4, 0.3), (4, 0.6)), duty_busy=2.0, duty_switch=0.4,
    duty_seconds=45.0,
    slow_seconds=60.0, slow_rounds=2,
)  # fmt: skip
