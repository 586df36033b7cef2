# SPDX-License-Identifier: Apache-2.0
"""Bugs in the agent, its helpers and its plan."""

from __future__ import annotations

from chaos.mutants.catch import Chaos, Pytest, breaks
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_SWITCH, _COMMIT = "nodeagent/switch.py", "nodeagent/commit.py"
_WORKER, _AGENT = "nodeagent/worker.py", "nodeagent/agent.py"
_TESTS = "tests/nodeagent"


AGENTS: tuple[Mutant, ...] = (
    Mutant(
        "old-incarnations-answer",
        "An agent answers under a registration that is gone.",
        (
            Edit(
                "nodeagent/store.py", "NodeStore._guards", ", created_at(self.keys.agent(self.node), incarnation)]", "]"
            ),
        ),
        breaks(11, search="--nodes 1 --fault lapse"),
        fast=True,
    ),
    Mutant(
        "commit-on-prepare",
        "A node saves what goes as soon as it is prepared.",
        (
            Edit(
                _WORKER,
                "Worker._carry_out",
                "self._prepared = (directive.epoch, incarnation)\n                    return answer",
                "self._prepared = (directive.epoch, incarnation)\n"
                "                        await self._commit(order, kept, incarnation)\n"
                "                    return answer",
            ),
        ),
        breaks(2, 9, search="--nodes 1 --fault expire"),
        "A release that follows shows it: what was on is believed to be on still.",
        fast=True,
    ),
    Mutant(
        "no-second-look",
        "COMMIT goes by what PREPARE has found.",
        (
            Edit(
                _SWITCH,
                "Switch.prepare",
                '        hit("agent.prepare.locked")\n',
                '        self._seen = course\n        hit("agent.prepare.locked")\n',
            ),
            Edit(
                _SWITCH,
                "Switch.commit",
                "course, refusal = await self._make_ready(order)",
                "course, refusal = self._seen, None",
            ),
            Edit(_SWITCH, "Switch.commit", "if course.locked:", "if False:"),
        ),
        Pytest(f"{_TESTS}/test_crashes.py::test_rule_9_what_is_saved_is_in_the_ledger_before"),
        "The driver's word that the device is free (rule 8) keeps the other job off it.",
    ),
    Mutant(
        "free-is-not-verified",
        "The next job is restored without asking the driver whether the device is free.",
        (
            Edit(
                _COMMIT,
                "Commit._go_through",
                "if failure := await self._verify_free():\n            return failure\n",
                "await self._look()\n",
            ),
            Edit(
                _COMMIT,
                "Commit._judge",
                " or plan.judge_free(scene, self._steps.backend.baseline_bytes)",
                "",
            ),
        ),
        Pytest(f"{_TESTS}/test_failures.py::test_memory_that_is_not_freed_is_not_believed"),
        "It is looked at once more before the incoming job is unlocked (rule 13): that look is out here, too.",
    ),
    Mutant(
        "released-before-the-lock-came",
        "A PREPARE that is given up leaves a lock that waits for a kernel to come whenever it likes.",
        (
            Edit(
                _SWITCH,
                "Switch._unless_newer",
                "                await asyncio.wait({task}, timeout=_OUTLAST_KERNEL)\n                raise Superseded",
                "                raise Superseded",
            ),
        ),
        Pytest(f"{_TESTS}/test_late_locks.py"),
        "A look unlocks it within a second, and has the holder stopped until then.",
    ),
    Mutant(
        "helper-without-the-lock",
        "A helper does not inherit its devices' OS locks.",
        (Edit("nodeagent/helpers.py", "Helper.start", "pass_fds=tuple(lock_fds), ", ""),),
        Pytest(f"{_TESTS}/test_helpers.py::test_a_lock_lasts_as_long_as_a_helper"),
    ),
    Mutant(
        "unlocks-a-begun-commit",
        "An agent unlocks at its start what an earlier life had locked, although its COMMIT had begun.",
        (Edit(_AGENT, "unlock_left", "if state.begun is not None:", "if False:"),),
        Pytest(f"{_TESTS}/test_crashes.py::test_rule_15_what_a_begun_commit_locked_is_left_to_that_commit"),
    ),
    Mutant(
        "leaves-it-locked",
        "An agent leaves locked at its start what an earlier life had locked for a PREPARE.",
        (Edit(_AGENT, "unlock_left", "elif state.locked:", "elif False:"),),
        Pytest(f"{_TESTS}/test_crashes.py::test_what_was_locked_is_unlocked_before_etcd_is_asked"),
    ),
    Mutant(
        "smaller-epoch-obeyed",
        "An agent obeys an epoch smaller than one that it has seen.",
        (Edit(_WORKER, "Worker._carry_out", "if directive.epoch < highest:", "if False:"),),
        breaks(4, search="--nodes 1 --fault restart --fault ahead"),
        fast=True,
    ),
    Mutant(
        "lost-session-restored",
        "What was saved for a session that was lost is restored for another one.",
        (
            Edit(
                "nodeagent/plan.py",
                "_session_allows",
                "return lost is None or lost == scene.directive.on_process",
                "return True",
            ),
        ),
        breaks(8, search="--nodes 1 --fault die"),
        fast=True,
    ),
    Mutant(
        "saved-before-recorded",
        "Nothing of what is about to be saved is put into the ledger before.",
        (Edit(_WORKER, "Worker._commit", "if processes != now.records:", "if False:"),),
        Pytest(f"{_TESTS}/test_crashes.py::test_rule_9_what_is_saved_is_in_the_ledger_before"),
        "PREPARED wrote what was there then: only what has come since shows it.",
    ),
    Mutant(
        "locks-are-only-noted",
        "PREPARE locks before what it locks is on the disk.",
        (Edit(_SWITCH, "Switch._lock", "self._journal.update(", "self._journal.note("),),
        Pytest(f"{_TESTS}/test_crashes.py::test_what_was_locked_is_unlocked_before_etcd_is_asked"),
    ),
    Mutant(
        "early-answer-never-ages",
        "That a directive was in force when COMMIT came counts however long its locks took.",
        (Edit("nodeagent/early.py", "Early.answer", " and self._clock() - self._asked < FRESH", ""),),
        Pytest(f"{_TESTS}/test_early.py"),
        fast=True,
    ),
    Mutant(
        "no-look-before-it-runs",
        "The incoming job is let run by what was seen before it was restored.",
        (Edit(_COMMIT, "Commit._go_through", "            await self._look()\n", ""),),
        Pytest(
            f"{_TESTS}/test_failures.py"
            "::test_rule_13_what_came_onto_the_device_since_keeps_the_incoming_job_from_running"
        ),
    ),
    Mutant(
        "older-look-is-shared",
        "Who asks what is on the devices is answered by a look that was begun before.",
        (
            Edit(
                "nodeagent/backends/looks.py",
                "Looks._see",
                "self._next = None  # who comes from here on wants another\n"
                "                seen = await self._make(wish)\n",
                "seen = await self._make(wish)\n                self._next = None\n",
            ),
        ),
        Pytest(f"{_TESTS}/test_looks.py"),
        fast=True,
    ),
    Mutant(
        "strangers-are-let-be",
        "A switch goes on although a process that belongs to no job is on the devices.",
        (Edit("nodeagent/plan.py", "judge_findings", "    if findings.strangers:\n", "    if False:\n"),),
        Chaos("refusing-node", 182, 2, frozenset({"a refusal is told, and nobody is stuck"})),
    ),
    Mutant(
        "save-is-skipped",
        "An agent says that it has locked and saved, and has not touched the process.",
        (
            Edit(
                "nodeagent/__main__.py",
                "main",
                "def main() -> int:",
                "def main() -> int:\n"
                "    from chaos.planted import SkipsSave\n"
                "    from nodeagent import agent\n"
                "    agent.DrivenBackend = SkipsSave\n"
                "    return _main()\n\n\ndef _main() -> int:",
            ),
        ),
        Chaos("kill-holder", 182, 1, frozenset({"one at a time", "off before the next is on"})),
    ),
)
