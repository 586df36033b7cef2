# SPDX-License-Identifier: Apache-2.0
"""Processes that die, stand still, or are started anew: the system's own, and the helpers of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from random import Random

from chaos.faults.family import AGENT_HELPER, CLIENT_HELPER, helpers
from chaos.faults.fault import Fault, Harm, NotPossible, Party, nothing
from chaos.world import World

Choose = Callable[[World, Random], str]


def any_replica(world: World, random: Random) -> str:
    return f"replica{random.randrange(len(world.endpoints))}"


def any_agent(world: World, random: Random) -> str:
    return f"agent-{random.choice(world.nodes).name}"


def any_member(world: World, random: Random) -> str:
    return random.choice(world.etcd.members).name


def etcd_leader(world: World, random: Random) -> str:
    del random  # there is one
    return world.etcd.members[world.etcd.leader()].name


def any_job(world: World, random: Random) -> str:
    living = [name for name in world.jobs if world.pid(name) is not None]
    if not living:
        raise NotPossible("no job runs")
    return random.choice(living)


def kill(name: str, party: Party, choose: Choose, lasts: float) -> Fault:
    """SIGKILL, and a new start at the end."""

    def begin(world: World, random: Random) -> Harm:
        victim = choose(world, random)
        world.kill(victim)
        return Harm(f"SIGKILL {victim}", partial(world.restart, victim))

    return Fault(name, party, lasts, begin)


def stop(name: str, party: Party, choose: Choose, lasts: float) -> Fault:
    """SIGSTOP, and SIGCONT at the end."""

    def begin(world: World, random: Random) -> Harm:
        victim = choose(world, random)
        world.freeze(victim)
        return Harm(f"SIGSTOP {victim}", partial(world.thaw, victim))

    return Fault(name, party, lasts, begin)


def restart(name: str, party: Party, choose: Choose) -> Fault:
    """SIGTERM, and a new start as soon as it has ended."""

    def begin(world: World, random: Random) -> Harm:
        victim = choose(world, random)
        world.stop(victim)
        world.restart(victim)
        return Harm(f"restart {victim}", nothing)

    return Fault(name, party, 0.0, begin)


def kill_job() -> Fault:
    """SIGKILL to a job's client. It comes back under its name as a new process, which starts from nothing."""

    def begin(world: World, random: Random) -> Harm:
        victim = any_job(world, random)
        world.kill(victim)

        def again() -> None:
            world.restart(victim)
            world.jobs[victim].run()

        return Harm(f"SIGKILL {victim}", again, excused=(victim,))

    return Fault("kill-client", Party.CLIENT, 2.0, begin)


def _helper(choose: Choose, program: str, world: World, random: Random) -> tuple[str, int]:
    parent = choose(world, random)
    pid = world.pid(parent)
    found = helpers(pid, program) if pid is not None else []
    if not found:
        raise NotPossible(f"{parent} has no helper now")
    return parent, random.choice(found)


def kill_helper(name: str, party: Party, choose: Choose, program: str) -> Fault:
    """SIGKILL to a helper; its parent starts another."""

    def begin(world: World, random: Random) -> Harm:
        parent, pid = _helper(choose, program, world, random)
        what = f"SIGKILL helper {pid} of {parent}"
        world.mark(what)
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, signal.SIGKILL)
        return Harm(what, nothing)

    return Fault(name, party, 0.0, begin)


def stop_helper(name: str, party: Party, choose: Choose, program: str, lasts: float) -> Fault:
    """SIGSTOP to a helper, and SIGCONT."""

    def begin(world: World, random: Random) -> Harm:
        parent, pid = _helper(choose, program, world, random)
        what = f"SIGSTOP helper {pid} of {parent}"
        world.mark(what)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        def undo() -> None:
            world.mark(f"SIGCONT helper {pid} of {parent}")
            with contextlib.suppress(ProcessLookupError):  # its parent may have ended it meanwhile
                os.kill(pid, signal.SIGCONT)

        return Harm(what, undo)

    return Fault(name, party, lasts, begin)


FAULTS: tuple[Fault, ...] = (
    kill("kill-replica", Party.REPLICA, any_replica, 1.0),
    stop("stop-replica", Party.REPLICA, any_replica, 6.0),
    restart("restart-replica", Party.REPLICA, any_replica),
    kill("kill-agent", Party.AGENT, any_agent, 1.0),
    stop("stop-agent", Party.AGENT, any_agent, 3.0),
    restart("restart-agent", Party.AGENT, any_agent),
    kill_helper("kill-agent-helper", Party.AGENT, any_agent, AGENT_HELPER),
    stop_helper("stop-agent-helper", Party.AGENT, any_agent, AGENT_HELPER, 2.0),
    kill_job(),
    stop("stop-client", Party.CLIENT, any_job, 2.0),
    kill_helper("kill-client-helper", Party.CLIENT, any_job, CLIENT_HELPER),
    stop_helper("stop-client-helper", Party.CLIENT, any_job, CLIENT_HELPER, 2.0),
    kill("kill-etcd", Party.ETCD, any_member, 1.0),
    kill("kill-etcd-leader", Party.ETCD, etcd_leader, 1.0),
    stop("stop-etcd", Party.ETCD, any_member, 2.0),
    restart("restart-etcd", Party.ETCD, any_member),
)
