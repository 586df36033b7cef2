# SPDX-License-Identifier: Apache-2.0
"""A holder dies or stands still. Its session's end takes the turn from it; the next job is let on only when the device
is free of it, whatever its workers still do."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import grpc

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.dev.lines import Line, Trouble
from chaos.plain import plain_session, reason_of
from chaos.processes import Child, ProcessTrouble
from chaos.scenarios.losing import Loss, hold, lose, queue_up
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.world import World
from timeslice_proto.v1 import coordinator_pb2

_TTL = 2.0
_SLACK = 1.0
"""Seconds after the TTL in which the turn is to be reclaimed."""

_ENDLESS = Rhythm(busy=3600.0, idle=0.0, kernel=0.1)
_FOLLOWER = Rhythm(busy=0.3, idle=0.1, kernel=0.1)
_FROZEN = Rhythm(busy=2 * _TTL, idle=0.1, spread=0.0, kernel=0.1)
_LONG = Rhythm(busy=1.0, idle=0.1, kernel=0.1)
_LOST = frozenset({"TURN_LOST", "SESSION_EXPIRED"})
_LATE = frozenset({"STALE_TOKEN", "NOT_HOLDER"})


def _off_before(world: World, loss: Loss, pids: Sequence[int]) -> Iterator[Violation]:
    """By the device's log: the lost job's processes stopped being able to run before the next was granted."""
    (node,) = world.nodes
    stops = {one.pid: one.at for one in world.events(node) if one.name == "stop" and loss.at < one.at <= loss.granted}
    for pid in (pid for pid in pids if pid not in stops):
        what = f"process {pid} of {loss.job} was able to run when the next job was granted"
        yield Violation("off before the next is on", what)


def _on(world: World, job: str) -> list[int]:
    """The pids of the job's processes that are able to run now."""
    (node,) = world.nodes
    running: set[int] = set()
    for event in world.events(node):
        if event.job == job and event.name == "run":
            running.add(event.pid)
        elif event.name == "stop":
            running.discard(event.pid)
    return sorted(running)


def _figures(losses: Sequence[Loss]) -> Figures:
    return Figures(len(losses), len(losses), {"HELD": len(losses)}, tuple(one.waited for one in losses))


def _times(losses: Sequence[Loss]) -> list[str]:
    limit = _TTL + _SLACK
    reclaimed = [(one.reclaimed - one.at) / NS for one in losses]
    on_time = sum(1 for seconds in reclaimed if seconds <= limit)
    return [
        f"turn reclaimed after the fault: {spread(reclaimed)}; TTL {_TTL:g} s + {_SLACK:g} s: {on_time} in time",
        f"next job granted after the fault: {spread([one.waited for one in losses])}",
    ]


# ------------------------------------------------------------------------------------------------ kill-holder


def _kill_holder(run: Run) -> tuple[list[str], list[Violation]]:
    """The client is killed; a worker of it, which nobody told, goes on running kernels."""
    losses: list[Loss] = []
    found: list[Violation] = []
    dead: list[str] = []
    with World() as world, observer(world) as eyes:
        follower = world.start_job("follower", rhythm=_FOLLOWER, seed=run.seed)
        try:
            while len(dead) < run.count and not run.over:
                dead.append(f"victim-{len(dead)}")
                hold(world, eyes, dead[-1], _ENDLESS, run.seed, _TTL)
                spinner = _spin(world, dead[-1])
                queue_up(world, eyes, follower)
                on = _on(world, dead[-1])
                losses.append(lose(world, eyes, dead[-1], functools.partial(world.kill, dead[-1])))
                found.extend(_off_before(world, losses[-1], on))
                run.say(f"{dead[-1]}: next granted after {losses[-1].waited:.2f} s, {len(on)} processes taken off")
                follower.rest()
                follower.wait_rested(WITHIN)
                spinner.kill()
        except (ProcessTrouble, TimeoutError) as error:
            found.append(Violation("a dead holder is replaced", str(error)))
        run.note(_figures(losses))
        facts, violations = judged(world, eyes, excused=dead)
    return [*_times(losses), *facts], [*found, *violations]


def _spin(world: World, job: str) -> Child:
    """A worker of the job that outlives it."""
    (node,) = world.nodes
    environment = {"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": world.group}
    command = ("-m", "chaos.spinner", str(node.socket), node.devices[0])
    log = world.folder / f"spinner-{job}.log"
    child = Child(f"spinner of {job}", command, log, environment=environment, ready="^spins")
    child.start()
    child.wait_ready(WITHIN)
    return child


# ------------------------------------------------------------------------------------------------ freeze-holder


def _freeze_holder(run: Run) -> tuple[list[str], list[Violation]]:
    """The client stands still past its TTL, and wakes up while another holds the turn."""
    losses: list[Loss] = []
    told: list[float] = []
    late: Counter[str] = Counter()
    found: list[Violation] = []
    names: list[str] = []
    with World() as world, observer(world) as eyes:
        follower = world.start_job("follower", rhythm=_LONG, seed=run.seed)
        try:
            while len(names) < run.count and not run.over:
                names.append(name := f"sleeper-{len(names)}")
                sleeper = hold(world, eyes, name, _FROZEN, run.seed, _TTL)
                queue_up(world, eyes, follower)
                on = _on(world, name)
                losses.append(loss := lose(world, eyes, name, functools.partial(world.freeze, name)))
                found += [*_off_before(world, loss, on), *_parked(world, loss, on)]
                late[reason := _late_yield(world, loss)] += 1
                if reason not in _LATE:
                    found.append(Violation("a late token changes nothing", f"a yield of {name} was answered {reason}"))
                thawed = time.monotonic_ns()
                world.thaw(name)
                sleeper.wait_for(_is_told, WITHIN, "say that its turn was lost")
                told.append((next(filter(_lost, sleeper.lines)).mono - thawed) / NS)
                run.say(f"{name}: next granted after {loss.waited:.2f} s; told {told[-1] * 1000:.0f} ms after it woke")
                follower.rest()
                follower.wait_rested(WITHIN)
                sleeper.wait_turns(1, WITHIN)  # its state is back, and intact
                sleeper.rest()
                sleeper.wait_rested(WITHIN)
        except (ProcessTrouble, TimeoutError) as error:
            found.append(Violation("a holder that wakes up late does no harm", str(error)))
        taken = {one.turn.yielded_token for one in eyes.seen if one.turn}
        for loss in (loss for loss in losses if loss.token in taken):
            found.append(Violation("a late token changes nothing", f"the yield of token {loss.token} was written"))
        run.note(_figures(losses))
        facts, violations = judged(world, eyes, excused=names)
    answers = ", ".join(f"{count} {reason}" for reason, count in late.items())
    own = [f"told that its turn was lost, after waking: {spread(told)}", f"a yield with the old token: {answers}"]
    return [*_times(losses), *own, *facts], [*found, *violations]


def _parked(world: World, loss: Loss, pids: Sequence[int]) -> Iterator[Violation]:
    """Its processes were saved, not killed."""
    (node,) = world.nodes
    saved = {one.pid for one in world.events(node) if one.name == "checkpoint-end" and loss.at < one.at}
    for pid in (pid for pid in pids if pid not in saved):
        yield Violation("a lost holder is parked", f"process {pid} of {loss.job} was not saved")


def _late_yield(world: World, loss: Loss) -> str:
    """The reason by which a yield with the lost turn's token is refused, or YIELDED."""
    with world.coordinator() as stub:
        session = plain_session(stub)
        late = coordinator_pb2.YieldRequest(sequence=1, job=loss.job, group=world.group, token=loss.token)
        call = coordinator_pb2.YieldCall(session=session.session, secret=session.secret)
        getattr(call, "yield").CopyFrom(late)
        try:
            stub.Yield(call, timeout=WITHIN)
        except grpc.RpcError as error:
            return reason_of(error)
        return "YIELDED"


def _lost(line: Line) -> bool:
    return isinstance(line, Trouble) and line.reason in _LOST


def _is_told(lines: Sequence[Line]) -> bool:
    return any(map(_lost, lines))


KILL_HOLDER = Scenario(
    "kill-holder",
    "A holder that dies is replaced once its lease has ended, and not before the device is free of it.",
    5,
    _kill_holder,
)
FREEZE_HOLDER = Scenario(
    "freeze-holder",
    "A holder that stands still past its TTL is parked, replaced, and told so when it wakes up.",
    5,
    _freeze_holder,
)
