# SPDX-License-Identifier: Apache-2.0
"""What `get` says beside where a group's turn stands."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide import GroupView, NodeState
from coordinator.picture import Picture
from coordinator.serve import look
from coordinator.serve.remarks import remarks
from ledger.codec import encode
from ledger.etcd import KeyValue
from ledger.kept import Kept
from ledger.keys import Keys
from ledger.records import (
    Ack,
    Agent,
    Directive,
    DirectiveKind,
    Ended,
    GroupSpec,
    JobProcesses,
    LostPolicy,
    NodeDevices,
    Outcome,
    Policy,
    Process,
    Processes,
    ProcessRecord,
    Resident,
    ResidentKind,
    Turn,
)
from ledger.view import Change, Changes

SOUND = Agent(parked_means_stopped=True)


def group(
    agent: Agent = SOUND, processes: Processes | None = None, turn: Turn | None = None, policy: Policy | None = None
) -> GroupView:
    node = NodeState(agent=Kept("n", agent, 1, 1), processes=Kept("n", processes, 1, 1) if processes else None)
    return GroupView(
        "g",
        9,
        spec=Kept("g", GroupSpec(nodes=(NodeDevices("n", ("d",)),), policy=policy), 1, 1),
        turn=Kept("g", turn or Turn(), 1, 1),
        nodes={"n": node},
    )


def of(job: str, *pids: int, out_of_turn: bool) -> JobProcesses:
    return JobProcesses(job, tuple(ProcessRecord(Process("boot", pid, 1), out_of_turn=out_of_turn) for pid in pids))


def test_nothing_is_said_where_all_is_as_it_should_be() -> None:
    assert remarks(group(processes=Processes(jobs=(of("a", 1, out_of_turn=False),)))) == ()


def test_rule_8_what_runs_out_of_turn_and_who_belongs_to_nobody_is_named() -> None:
    jobs = (of("a", 1, out_of_turn=False), of("b", 2, 3, 4, 5, out_of_turn=True))
    assert remarks(group(processes=Processes(jobs=jobs, strangers=(Process("boot", 9, 1),)))) == (
        "On n out of turn: process 2 of b, 3 of b, 4 of b and 1 more.",
        "On n of no job of the group: process 9.",
    )


def test_rule_13_a_backend_by_which_parked_is_not_stopped_is_named() -> None:
    (said,) = remarks(group(agent=Agent(parked_means_stopped=False)))
    assert said.startswith("On n a parked process could still run")


def test_rule_21_under_park_only_the_group_says_that_nothing_is_killed() -> None:
    lost = Turn(resident=Resident(ResidentKind.JOB, "a", Ended.LOST))
    (said,) = remarks(group(turn=lost, policy=Policy(lost=LostPolicy.PARK_ONLY)))
    assert said == "a is lost, and by the policy park-only it is not killed."
    assert remarks(group(turn=lost)) == ()


def test_rule_23_a_node_that_was_dropped_and_has_yet_to_be_cleared_is_named() -> None:
    view = group(turn=Turn(nodes=("other",)))
    told = replace(view.node("n"), directive=Kept("n", Directive(epoch=1, kind=DirectiveKind.COMMIT), 1, 7))
    (remark,) = remarks(replace(view, nodes={"n": told}))
    assert remark == "n, not in force, has yet to clear its devices: the group keeps them."
    answered = replace(told, ack=Kept("n", Ack(directive_revision=7, epoch=1, outcome=Outcome.COMMITTED), 8, 8))
    assert remarks(replace(view, nodes={"n": answered})) == ()
    assert remarks(replace(view, turn=Kept("g", Turn(nodes=("n",)), 1, 1), nodes={"n": told})) == ()


def test_a_groups_note_has_them_in_full_and_in_brief() -> None:
    keys = Keys("/x")
    picture = Picture(keys)
    view = group(agent=Agent(parked_means_stopped=False))
    assert view.spec is not None and view.turn is not None
    values = {keys.spec("g"): view.spec.value, keys.turn("g"): view.turn.value, keys.agent("n"): Agent()}
    kvs = [KeyValue(key, encode(value), 1, 1, 1, 0) for key, value in values.items()]
    picture.take(Changes(1, tuple(Change(kv.key, kv) for kv in kvs)))
    picture.notes["g"] = "It stands."
    for brief in (True, False):
        assert look.group(picture, "g", brief=brief).note.startswith("It stands. On n a parked process could")
