# SPDX-License-Identifier: Apache-2.0
"""Bugs in what becomes of a node that was dropped, and of who has processes there (rule 23)."""

from __future__ import annotations

from chaos.mutants.catch import Pytest, breaks
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_COMMANDS = "coordinator/decide/commands.py"
_DROP = "coordinator/decide/drop.py"
_IDLE = "coordinator/decide/idle.py"
_RESTORES = "coordinator/decide/restores.py"
_SPEC = "coordinator/decide/spec.py"
_TESTS = "tests/coordinator/decide"

DROPS: tuple[Mutant, ...] = (
    Mutant(
        "back-as-before",
        "A node that was dropped is taken back, and who was on without it is believed to be on there too.",
        (
            Edit(
                _DROP,
                "returned",
                "resident=unknown(turn),",
                "resident=turn.resident,",
            ),
        ),
        breaks(2, search="--prompt --fault lapse --fault drop --fault refuse"),
        behind="A node that obeys as it comes back has cleared its device: only one that refuses shows it.",
    ),
    Mutant(
        "sound-beside-the-dropped",
        "A job is declared sound while a node that was dropped with a process of it is not back.",
        (
            Edit(
                _COMMANDS,
                "unquarantine",
                "if view.turn is not None and not force and",
                "if view.turn is not None and force and",
            ),
        ),
        breaks(8, search="--prompt --fault restart --fault away --fault drop --fault pardon"),
    ),
    Mutant(
        "sound-beside-a-drop",
        "That a job is sound is written without the turn: a drop that takes the job for quarantined is written, too.",
        (
            Edit(
                _COMMANDS,
                "unquarantine",
                "same = view.turn.value if view.turn is not None else None",
                "same = None",
            ),
        ),
        breaks(
            8,
            search="--prompt --replicas 2 --fault restart --fault away --fault drop --fault pardon --fault unfit",
        ),
        behind="It takes two replicas, and a job that is quarantined before the drop.",
    ),
    Mutant(
        "sound-once-cleared",
        "A job is declared sound once the node that was dropped with a process of it is cleared, before it is back.",
        (
            Edit(
                _DROP,
                "left_behind",
                "for node in dropped(view, turn)",
                "for node in uncleared(view, turn)",
            ),
        ),
        breaks(8, search="--prompt --fault restart --fault away --fault drop --fault pardon"),
        behind="The group takes such a node back at once: only who acquires before that, and is still on, shows it.",
    ),
    Mutant(
        "spec-forgets-the-dropped",
        "A spec without a node that was dropped is adopted although jobs have state there: cleared, it is forgotten.",
        (
            Edit(
                _SPEC,
                "respecified",
                "view.parked_on(leaving + forgotten)",
                "view.parked_on(leaving)",
            ),
        ),
        breaks(
            8,
            search="--specs 1,2/2 --prompt --fault respec --fault restart --fault away --fault drop --fault pardon",
        ),
    ),
    Mutant(
        "dropped-while-a-spec-waits",
        "A node that was dropped is not taken back while a spec without it waits for what is parked there.",
        (
            Edit(
                _IDLE,
                "idle",
                "if (back := returned(view, turn, view.spec)) is not None:",
                "if (back := None) is not None:",
            ),
        ),
        Pytest(
            f"{_TESTS}/test_drop.py"
            "::test_rule_23_and_4_a_spec_without_a_dropped_node_waits_for_what_is_parked_there_unless_forced"
        ),
    ),
    Mutant(
        "exonerated-beside-the-dropped",
        "A job is sound again because its device was at fault, while a node that was dropped with a process of it is "
        "not back.",
        (
            Edit(
                _RESTORES,
                "exonerated",
                "{} if left_behind(view, turn, doubted.job) else ",
                "",
            ),
        ),
        Pytest(
            f"{_TESTS}/test_restores.py::test_rule_25_and_23_nor_is_a_job_sound_that_has_processes_on_a_dropped_node"
        ),
    ),
    Mutant(
        "forgotten-uncleared",
        "A node that leaves and whose agent stays away is forgotten, and not told to clear its devices.",
        (
            Edit(
                _DROP,
                "_drop",
                "return replace(decision, absent=(node,), directives=told)",
                "return replace(decision, absent=(node,), "
                "**({'forget': (node,)} if node in turn.leaving else {'directives': told}))",
            ),
        ),
        breaks(
            9,
            search="--jobs 1 --specs 1,2/2 --prompt "
            "--fault respec --fault force --fault restart --fault away --fault drop",
        ),
        behind="A COMMIT that its agent has died in shows it: what that had locked is left to it.",
    ),
)
