# SPDX-License-Identifier: Apache-2.0
"""Bugs in what the coordinator decides."""

from __future__ import annotations

from chaos.mutants.catch import Pytest, breaks
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_COMMANDS = "coordinator/decide/commands.py"
_COMMITTING = "coordinator/decide/committing.py"
_CORE = "coordinator/decide/core.py"
_HELD = "coordinator/decide/held.py"
_IDLE = "coordinator/decide/idle.py"
_NUMBERS = "coordinator/decide/numbers.py"
_PREPARING = "coordinator/decide/preparing.py"
_QUEUE = "coordinator/decide/queue.py"
_RELEASING = "coordinator/decide/releasing.py"
_SWITCH = "coordinator/decide/switch.py"
_TESTS = "tests/coordinator/decide"

DECISIONS: tuple[Mutant, ...] = (
    Mutant(
        "grant-at-first-committed",
        "The turn is granted once one node has committed.",
        (
            Edit(
                _COMMITTING,
                "committing",
                "if all_say(turn, acks, Outcome.COMMITTED):",
                "if any(ack.outcome is Outcome.COMMITTED for ack in acks.values()):",
            ),
            Edit(
                _COMMITTING,
                "_finished",
                "lost = tuple(process for node in turn.nodes for",
                "lost = tuple(process for node in acks for",
            ),
            Edit(
                _COMMITTING,
                "_finished",
                "acks[node].restored for node in turn.nodes",
                "acks[node].restored for node in acks",
            ),
        ),
        breaks(3, search="--nodes 2"),
        fast=True,
    ),
    Mutant(
        "commit-at-first-prepared",
        "COMMIT is told to all once one node is prepared.",
        (
            Edit(
                _PREPARING,
                "preparing",
                "if all_say(turn, acks, Outcome.PREPARED):",
                "if any(ack.outcome is Outcome.PREPARED for ack in acks.values()):",
            ),
        ),
        breaks(8, search="--fault refuse"),
        "A node that was told COMMIT and has not prepared prepares first (rule 15): only one that refuses shows it.",
        fast=True,
    ),
    Mutant(
        "release-does-not-wait",
        "A release ends with the first node's answer.",
        (
            Edit(
                _RELEASING,
                "releasing",
                "if all_say(turn, acks, Outcome.RELEASED):",
                "if any(ack.outcome is Outcome.RELEASED for ack in acks.values()):",
            ),
        ),
        breaks(2, 9, search="--fault expire"),
        fast=True,
    ),
    Mutant(
        "commit-without-second-phase",
        "A group of one node is granted on PREPARED alone.",
        (
            Edit(
                _PREPARING,
                "preparing",
                "return Verdict(commit(view, turn))",
                "return Verdict(_folded(view, turn) if len(turn.nodes) == 1 else commit(view, turn))",
            ),
            Edit(
                _PREPARING,
                "_blocked",
                "def _blocked(",
                "def _folded(view: GroupView, turn: Turn) -> Decision:\n"
                "    from coordinator.decide import committing\n"
                "    return committing._finished(view, turn, answers(view, turn))\n\n\n"
                "def _blocked(",
            ),
        ),
        breaks(3, search="--nodes 1"),
        fast=True,
    ),
    Mutant(
        "old-directives-answer",
        "An answer counts whichever directive it was given to.",
        (
            Edit(
                _SWITCH,
                "answers",
                "if (ack := state.ack) and (told := state.directive) and ack.value.directive_revision == told.mod:",
                "if (ack := state.ack) and state.directive:",
            ),
        ),
        Pytest(f"{_TESTS}/test_switch.py::test_rule_7_an_answer_to_an_older_directive_does_not_count"),
        "The explorer's agents answer the directive in force alone, so it cannot see this one.",
        fast=True,
    ),
    Mutant(
        "served-by-name",
        "The queue is served in the order of the jobs' names.",
        (
            Edit(
                _QUEUE,
                "head_of",
                "in order.values() if",
                "in sorted(view.waiting(), key=lambda one: one.name) if",
            ),
        ),
        breaks(6, search="--nodes 1"),
        fast=True,
    ),
    Mutant(
        "own-ticket-before-the-view",
        "Ticket and grant are written together although somebody else may have queued meanwhile.",
        (Edit(_COMMANDS, "acquire", ", spec_mod=spec_mod, queue_empty=True)", ", spec_mod=spec_mod)"),),
        breaks(6, search="--nodes 1 --replicas 2"),
        "One replica sees its own writes: it takes two.",
        fast=True,
    ),
    Mutant(
        "free-path-after-lost",
        "Whoever is resident is granted at no cost, also when its last turn was lost.",
        (
            Edit(
                _IDLE,
                "_serve",
                "if head and resident == Resident(ResidentKind.JOB, head.name):",
                "if head and (resident.kind, resident.job) == (ResidentKind.JOB, head.name):",
            ),
        ),
        breaks(14, search="--nodes 1 --fault expire"),
        fast=True,
    ),
    Mutant(
        "holder-passed-over",
        "A holder loses its turn to whoever comes next, although it goes on.",
        (
            Edit(
                _HELD,
                "held",
                "ticket.value.token == turn.token\n",
                "ticket.value.token == turn.token and not view.waiting()\n",
            ),
        ),
        Pytest("tests/chaos/test_one_lock.py"),
        "The agents take it off the devices in order, so the devices' log shows nothing: the jobs' history does.",
    ),
    Mutant(
        "lost-is-clean",
        "A turn that is lost is taken for one that was given back.",
        (Edit(_HELD, "lost_turn", "Ended.LOST, turn.holder.process)", "Ended.CLEAN)"),),
        breaks(14, search="--nodes 1 --fault expire"),
        fast=True,
    ),
    Mutant(
        "incoming-ticket-gone",
        "A switch goes on although the ticket that it was begun for is gone.",
        (
            Edit(
                _PREPARING,
                "preparing",
                "if incoming.ticket_revision and incoming_ticket(view, turn) is None:",
                "if False:",
            ),
        ),
        Pytest(f"{_TESTS}/test_switch.py::test_rule_19_and_27_incoming_ticket_gone_pause_and_delete_release_a_prepare"),
        "The end of COMMIT looks for the ticket again and grants nobody (rule 19), so nothing unsafe comes of it: "
        "a job is moved for nobody.",
        fast=True,
    ),
    Mutant(
        "granted-without-its-ticket",
        "The end of COMMIT does not look whether the ticket is still the one that it was begun for.",
        (
            Edit(
                _SWITCH,
                "incoming_ticket",
                "if ticket and ticket.create == turn.incoming.ticket_revision and",
                "if ticket and",
            ),
        ),
        breaks(6, search="--nodes 1 --fault expire"),
        fast=True,
    ),
    Mutant(
        "refused-head-at-once",
        "A switch that a node has refused is tried again at once.",
        (
            Edit(
                _IDLE,
                "_held_back",
                "if not turn.blocked or not turn.attempt:\n        return None",
                "if True:\n        return None",
            ),
        ),
        breaks(15, search="--nodes 1 --fault refuse=2 --lasting"),
        "A fault that goes away by itself hides it.",
        fast=True,
    ),
    Mutant(
        "spec-in-mid-switch",
        "A new spec is adopted while a switch is being prepared.",
        (
            Edit(
                _PREPARING,
                "preparing",
                "    acks = answers(view, turn)\n",
                "    acks = answers(view, turn)\n"
                "    if view.spec and view.spec.mod != turn.generation:\n"
                "        from coordinator.decide.spec import respecified\n"
                "        return respecified(view, turn, view.spec)\n",
            ),
        ),
        breaks(16, search="--specs 1/1,2 --fault respec"),
        fast=True,
    ),
    Mutant(
        "failed-commit-is-released",
        "A commit that failed ends as if nothing had moved.",
        (
            Edit(
                _COMMITTING,
                "committing",
                "return Verdict(_failed(view, turn, node, ack))",
                'return Verdict(Decision("As it was.", replace(turn, phase=Phase.IDLE, incoming=None)))',
            ),
        ),
        breaks(2, 9, 14, search="--nodes 1 --fault unsaved --fault cancel"),
        fast=True,
    ),
    Mutant(
        "token-again",
        "A grant has the token of the one before.",
        (Edit(_NUMBERS, "next_token", "max(view.revision, turn.token + 1)", "turn.token"),),
        breaks(4, search="--nodes 1"),
        fast=True,
    ),
    Mutant(
        "epoch-again",
        "A new switch has the epoch of the one before.",
        (
            Edit(
                _NUMBERS,
                "next_epoch",
                "max(view.revision, turn.epoch + 1, view.highest_epoch() + 1, reported + 1)",
                "turn.epoch",
            ),
        ),
        breaks(4, search="--nodes 1"),
        fast=True,
    ),
    Mutant(
        "token-falls",
        "A grant has a smaller token than the one before.",
        (Edit(_NUMBERS, "next_token", "max(view.revision, turn.token + 1)", "turn.token - 1"),),
        breaks(4, search="--nodes 1"),
        fast=True,
    ),
    Mutant(
        "numbers-forget-the-store",
        "A group that is made anew begins to count its tokens anew.",
        (
            Edit(_NUMBERS, "next_token", "max(view.revision, turn.token + 1)", "turn.token + 1"),
            Edit(_NUMBERS, "new_turn", "token=view.revision", "token=0"),
        ),
        breaks(4, search="--nodes 1 --fault wipe"),
        fast=True,
    ),
    Mutant(
        "pause-stands-on-a-ticket",
        "Who pauses a group in mid-switch stands on the ticket that the switch is for: once that has gone neither the "
        "pause nor the release is written, until the pause is given up.",
        (
            Edit(
                "coordinator/decide/decision.py",
                "Decision.stands_on",
                " and bool(self.directives)",
                "",
            ),
        ),
        Pytest(f"{_TESTS}/test_commands.py::test_an_operator_who_writes_the_turn_of_a_switch_stands_on_no_ticket"),
    ),
    Mutant(
        "grant-beside-no-turn",
        "A grant goes on being there after the turn that it is of was deleted.",
        (Edit(_IDLE, "idle", "for ticket in view.tickets.granted:", "for ticket in ():"),),
        breaks(5, search="--jobs 1 --nodes 1 --fault wipe"),
        behind="A turn ends in the transaction that ends its ticket: only one that a hand has deleted shows it.",
        fast=True,
    ),
    Mutant(
        "kill-in-grace",
        "A job whose session is lost is killed at the first sign of resistance.",
        (
            Edit(
                _IDLE,
                "_serve",
                "out_of_grace = grace_over and may_kill(view)",
                "out_of_grace = may_kill(view)",
            ),
        ),
        breaks(8, search="--nodes 1 --fault resist"),
        fast=True,
    ),
    Mutant(
        "next-by-an-ended-pin",
        "Who is next by a pin alone is brought on although the same switch ends the pin.",
        (
            Edit(
                _IDLE,
                "_serve",
                "        turn = replace(turn, pinned=None)\n        head = next_head(view, turn)\n",
                "        turn = replace(turn, pinned=None)\n",
            ),
        ),
        breaks(6, search="--nodes 1 --prompt --fault die --fault unsaved --fault resist"),
        behind="What a lost session left has to resist, too: only then is anything killed.",
        fast=True,
    ),
    Mutant(
        "still-next-by-an-ended-pin",
        "A failed commit goes on for who was next by a pin alone, although it ends the pin.",
        (Edit(_SWITCH, "still_incoming", "is not None and not by_pin):", "is not None):"),),
        breaks(6, search="--nodes 1 --prompt --fault die --fault unsaved=2"),
        behind="It ends one only where what a lost session left cannot be saved.",
        fast=True,
    ),
    Mutant(
        "killed-although-back",
        "A pinned job that has come back to its lost turn may be killed once its grace is over.",
        (Edit(_IDLE, "_serve", "may_kill(view) and not _comes_back(turn, head)", "may_kill(view)"),),
        Pytest(f"{_TESTS}/test_idle.py::test_rule_20_a_pinned_job_that_has_come_back_is_not_killed_after_its_grace"),
        "No invariant says who may be killed of those that have lost their turn.",
        fast=True,
    ),
    Mutant(
        "next-and-quarantined",
        "A failed commit quarantines the job of a lost process, and brings the same job on.",
        (Edit(_COMMITTING, "_failed", "still_incoming(knowing(view, health), again)", "still_incoming(view, again)"),),
        breaks(6, search="--nodes 1 --prompt --fault expire --fault fatal"),
        behind="The ticket that the switch was begun for has to be gone by then.",
        fast=True,
    ),
    Mutant(
        "nobody-releases-it",
        "A group begins anew after a hand has deleted its turn, and releases nothing of the switch that was under way.",
        (Edit(_CORE, "_begun", "one.value.kind is DirectiveKind.PREPARE for", "False for"),),
        breaks(9, search="--nodes 1 --prompt --fault delete --fault wipe"),
        behind="The next switch would do that: only a group that makes none, as one that is being deleted, shows it.",
        fast=True,
    ),
    Mutant(
        "taken-back-is-not-lost",
        "Whose grant is taken back, since an agent has seen more than the ledger, is not known to have lost its turn.",
        (Edit(_HELD, "held", "after = lost_turn(turn)\n", "after = replace(turn, phase=Phase.IDLE, holder=None)\n"),),
        breaks(8, search="--jobs 1 --nodes 1 --prompt --fault die --fault restart --fault ahead"),
        behind="What its process has left on the devices goes to the next one then.",
        fast=True,
    ),
    Mutant(
        "left-by-a-hand",
        "A group begins anew after a hand has deleted its turn, and knows of no node but those of its new spec.",
        (Edit(_NUMBERS, "new_turn", "if state.directive or state.ack} - wanted", "if False}"),),
        breaks(8, search="--jobs 1 --specs 1,2/2 --prompt --fault respec --fault wipe"),
        behind="Where the spec is the one in force, each of its nodes is named by it.",
        fast=True,
    ),
)
