# SPDX-License-Identifier: Apache-2.0
"""Bugs in what is written into etcd, and in what is believed to be there."""

from __future__ import annotations

from chaos.mutants.catch import Explorer, Pytest, schedules
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_TRANSACTION, _WORKER = "coordinator/apply/transaction.py", "coordinator/apply/worker.py"
_VIEW, _QUEUE, _BATCH = "ledger/view.py", "ledger/queue.py", "ledger/etcd/batch.py"
_BATCH_TESTS = "tests/ledger/etcd/test_batch.py"

LEDGER: tuple[Mutant, ...] = (
    Mutant(
        "turn-not-compared",
        "A decision is written whatever has become of the turn since.",
        (
            Edit(
                _TRANSACTION,
                "_turn",
                "compares.append(modified_at(key, view.turn.mod) if view.turn else absent(key))",
                "pass",
            ),
        ),
        Explorer(frozenset({10}), ("--nodes", "1", "--replicas", "2")),
        "One replica decides on its own writes only: it takes two.",
        fast=True,
    ),
    Mutant(
        "ticket-not-compared",
        "A decision about a ticket is written whatever has become of the ticket since.",
        (
            Edit(
                _TRANSACTION,
                "_tickets",
                "compares.append(created_at(keys.ticket(view.name, job), create))",
                "pass",
            ),
        ),
        Explorer(frozenset({10, 14}), ("--nodes", "1", "--fault", "expire")),
        fast=True,
    ),
    Mutant(
        "grant-without-ignore-lease",
        "A grant takes its ticket off the session's lease.",
        (
            Edit(
                _TRANSACTION,
                "_tickets",
                "new = replace(old, state=TicketState.GRANTED, token=token, restored=restored, lost=lost)\n"
                "                ops.append(Put(key, encode(new), ignore_lease=True))",
                "new = replace(old, state=TicketState.GRANTED, token=token, restored=restored, lost=lost)\n"
                "                ops.append(Put(key, encode(new)))",
            ),
        ),
        Pytest("tests/coordinator/apply/test_guards.py::test_rule_1_a_grant_keeps_the_ticket_on_its_lease"),
        "The explorer's bridge sees it too, as each transaction is made (invariant 7); here a real etcd shows it.",
    ),
    Mutant(
        "view-older-than-own-write",
        "A replica decides on a view that does not show its own last write yet.",
        (Edit(_WORKER, "GroupWorker._step", "if engine.picture.revision < engine.floor(self._group):", "if False:"),),
        schedules("test_worker.py"),
        "What is decided so loses its guard at the turn: no harm, but a transaction for nothing.",
        fast=True,
    ),
    Mutant(
        "index-by-name",
        "A replica keeps the queue in the order of the jobs' names.",
        (
            Edit(
                _QUEUE,
                "_place",
                "(-ticket.value.priority, ticket.create, ticket.name)",
                "(-ticket.value.priority, 0, ticket.name)",
            ),
        ),
        Pytest("tests/ledger/test_index.py"),
        fast=True,
    ),
    Mutant(
        "list-forgets-what-is-gone",
        "What was deleted while the watch was away is believed to be there still.",
        (Edit(_VIEW, "LedgerView._take_list", "tuple(gone + new)", "tuple(new)"),),
        schedules("test_view.py"),
        fast=True,
    ),
    Mutant(
        "watch-skips-one",
        "After a list the watch goes on one revision too late.",
        (Edit(_VIEW, "LedgerView._follow", "start = listed.revision + 1", "start = listed.revision + 2"),),
        schedules("test_view.py"),
        fast=True,
    ),
    Mutant(
        "restored-store-not-noticed",
        "A store that was set back to an earlier revision is taken for the one that was known.",
        (
            Edit(
                _VIEW,
                "LedgerView._take_list",
                "header.cluster_id != self._cluster_id or header.revision < self.revision",
                "header.cluster_id != self._cluster_id",
            ),
        ),
        schedules("test_view.py"),
        fast=True,
    ),
    Mutant(
        "disturbed-together",
        "Transactions go to etcd in one request also where one writes what another compares, reads or writes.",
        (Edit(_BATCH, "_Waiting.may_go_with", "and not self.touched.disturbs(together)", ""),),
        Pytest(f"{_BATCH_TESTS}::test_two_of_which_one_disturbs_the_other_go_one_after_the_other"),
    ),
    Mutant(
        "refused-for-anothers-sake",
        "What etcd refuses for one transaction's sake is refused to all that went with it.",
        (Edit(_BATCH, "GroupCommit._failed", "isinstance(error, _FOR_ONES_SAKE)", "False"),),
        Pytest(f"{_BATCH_TESTS}::test_who_is_refused_is_refused_alone"),
    ),
    Mutant(
        "late-is-never-in-doubt",
        "A transaction whose time is up counts as not carried out, although it has been sent with others.",
        (Edit(_BATCH, "_Waiting.too_late", "ambiguous=self.sent", "ambiguous=False"),),
        schedules("test_batch.py"),
        fast=True,
    ),
)
