# SPDX-License-Identifier: Apache-2.0
"""Bugs of the kinds that users of such systems have reported (docs/failures.md), where no other list has them."""

from __future__ import annotations

from chaos.mutants.catch import Pytest
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_STREAM = "coordinator/serve/stream.py"
_COMMANDS, _SWITCH, _PLAN = "coordinator/decide/commands.py", "nodeagent/switch.py", "nodeagent/plan.py"
_DRIVEN, _HELPERS, _MEMORY = "nodeagent/backends/driven.py", "nodeagent/helpers.py", "nodeagent/hostmemory.py"
_COMMIT = "nodeagent/commit.py"
_NODE = "tests/nodeagent"


def _failures(test: str) -> Pytest:
    return Pytest(f"tests/failures/{test}")


STORE_FAILURES: tuple[Mutant, ...] = (
    Mutant(
        "ticket-without-lease",
        "A place in the queue is on no lease, and stays when its session has ended.",
        (
            Edit(
                "coordinator/apply/transaction.py",
                "_tickets",
                "ops.append(Put(key, encode(ticket), lease=int(ticket.session, 16)))",
                "ops.append(Put(key, encode(ticket)))",
            ),
        ),
        _failures("test_waiters.py"),
    ),
    Mutant(
        "end-is-not-told",
        "Nobody is told that the session has ended: who waits, or holds, hears of it when it next asks for something.",
        (
            Edit(
                _STREAM,
                "SessionStream._session_over",
                "                self._expired()\n",
                "                return False\n",
            ),
        ),
        _failures("test_waiters.py::test_l3_a_waiter_whose_lease_is_gone_is_told_though_nobody_leaves"),
    ),
    Mutant(
        "late-yield-counts",
        "A yield counts whoever's the turn is, by the job's name alone.",
        (
            Edit(
                _COMMANDS,
                "give_back",
                " and turn.holder.job == job and turn.token == token",
                " and turn.holder.job == job",
            ),
            Edit(_COMMANDS, "give_back", " and ticket.value.token == token", ""),
            Edit(_COMMANDS, "give_back", " and ticket.value.session == session", ""),
        ),
        _failures("test_holders.py::test_l6_a_late_yield_does_not_end_the_next_turn_of_the_same_job"),
        "Session and token each make good for the other.",
    ),
    Mutant(
        "cancel-by-name",
        "A cancel takes back whatever ticket the job has.",
        (
            Edit(
                _COMMANDS,
                "cancel",
                "if ticket is None or (ticket.value.session, ticket.value.sequence) != (session, sequence):",
                "if ticket is None:",
            ),
        ),
        _failures("test_holders.py::test_l6_a_late_cancel_does_not_take_the_next_place_of_the_same_job"),
    ),
    Mutant(
        "expiry-left-to-leases",
        "Sessions end with their lease alone, which etcd lengthens at each change of its leader.",
        (Edit("coordinator/serve/expiry.py", "Expiry._look", "kept is None or not self._is_ours(kept)", "True"),),
        Pytest(
            "tests/coordinator/serve/test_expiry.py::test_rule_30_a_silent_holder_loses_its_turn_although_its_lease_lives"
        ),
    ),
    Mutant(
        "counts-through-an-outage",
        "What is counted for a replica that is gone goes on through an outage, in which it may have been back.",
        (
            Edit(
                "coordinator/serve/expiry.py",
                "Expiry._unsure",
                "not view.live or view.breaks != charge.breaks",
                "False",
            ),
        ),
        Pytest(
            "tests/coordinator/serve/test_expiry.py"
            "::test_rule_24_what_is_counted_for_a_replica_that_is_gone_begins_anew_after_an_outage"
        ),
    ),
    Mutant(
        "counted-by-the-first-alone",
        "The session of a replica that is gone is counted by the one that ranks first alone, be it alive or not.",
        (
            Edit(
                "coordinator/serve/expiry.py",
                "Expiry._is_ours",
                "or kept.value.replica not in self._replicas",
                "or (kept.value.replica not in self._replicas and not self._engine.ahead(kept.name))",
            ),
        ),
        Pytest(
            "tests/coordinator/serve/test_expiry.py"
            "::test_rule_30_who_ranks_first_and_has_died_too_costs_one_holding_back"
        ),
    ),
    Mutant(
        "broken-stream-is-the-end",
        "A keepalive that is interrupted by a change of etcd's leader counts as the session's end.",
        (
            Edit(_STREAM, "SessionStream._beat", "except LeaseNotFound:", "except EtcdError:"),
            Edit("ledger/etcd/keepalive.py", "Keepalives._run", "await asyncio.sleep(pause)", "self._fail(error)"),
        ),
        _failures("test_store.py::test_l8_a_rolling_restart_of_etcd_costs_no_lock_and_no_place"),
        "Beats that are sent again on the next stream, and an answer that is not taken for an end: either is enough.",
    ),
    Mutant(
        "compacted-watch-goes-on",
        "A watch whose history is compacted goes on with what comes, and nobody lists what it has missed.",
        (
            Edit(
                "ledger/etcd/watch.py",
                "Watch._read",
                'raise Compacted(f"revision {self.next_revision} is compacted", response.compact_revision)',
                "self.next_revision = response.compact_revision\n"
                '            raise Unavailable("compacted", ambiguous=False)',
            ),
        ),
        _failures("test_store.py::test_l9_an_agent_that_stood_still_while_history_was_compacted_misses_no_directive"),
    ),
    Mutant(
        "silence-is-not-noticed",
        "A connection over which nothing comes any more is believed in.",
        (
            Edit(
                "ledger/etcd/channel.py",
                "Endpoint.__init__",
                "grpc.aio.insecure_channel(target, list(_OPTIONS))",
                'grpc.aio.insecure_channel(target, [one for one in _OPTIONS if "keepalive_time" not in one[0]])',
            ),
        ),
        _failures("test_store.py::test_l10_an_agent_whose_connection_has_gone_silent_finds_another"),
    ),
    Mutant(
        "asked-while-away-is-forgotten",
        "What was asked for while there was no stream, or on one that broke, is not asked for on the next.",
        (Edit("tsclient/entry.py", "Entry.off_stream", "sent=False", "sent=True"),),
        Pytest("tests/tsclient/test_session.py"),
        fast=True,
    ),
)

DEVICE_FAILURES: tuple[Mutant, ...] = (
    Mutant(
        "call-without-deadline",
        "A driver call is waited for as long as it lasts.",
        (Edit(_HELPERS, "Helper.call", "asyncio.timeout(within)", "asyncio.timeout(None)"),),
        Pytest(f"{_NODE}/test_refusals.py::test_a_lock_that_hangs_on_one_process_frees_the_others"),
    ),
    Mutant(
        "others-stay-locked",
        "Where one process of a job cannot be locked, those that were locked before stay so.",
        (
            Edit(
                _SWITCH,
                "Switch._lock",
                "        await self._undo(course, out)\n        found, error",
                "        found, error",
            ),
        ),
        Pytest(f"{_NODE}/test_refusals.py::test_a_lock_that_hangs_on_one_process_frees_the_others"),
    ),
    Mutant(
        "checks-do-not-count",
        "What can never be restored is locked and saved all the same.",
        (Edit(_PLAN, "judge_checks", "if scene.directive.kill:", "if True:"),),
        Pytest(f"{_NODE}/test_refusals.py::test_a_job_that_cannot_be_restored"),
    ),
    Mutant(
        "helper-leaves-it-locked",
        "A helper whose agent has died ends, and leaves locked what it had locked.",
        (Edit("nodeagent/helper_main.py", "Helper.serve", "        self._release()\n", ""),),
        Pytest(f"{_NODE}/test_crashes.py::test_a_helper_without_its_agent_unlocks"),
    ),
    Mutant(
        "slow-is-failed",
        "A copy that lasts longer than a second is taken for one that failed, whatever time was allowed.",
        (
            Edit(_COMMIT, "Commit._save", "self._order.left()", "min(self._order.left(), 1.0)"),
            Edit(_COMMIT, "Commit._restore", "self._order.left()", "min(self._order.left(), 1.0)"),
        ),
        _failures("test_slow.py"),
    ),
    Mutant(
        "operation-begun-twice",
        "Who asks for a checkpoint that is in hand begins another.",
        (
            Edit(
                "nodeagent/standalone.py", "Standalone._going", "one.job == job and one.state is State.RUNNING", "False"
            ),
        ),
        Pytest(f"{_NODE}/test_serve.py::test_a_slow_checkpoint_is_shown_and_not_begun_twice"),
    ),
    Mutant(
        "privilege-is-not-asked-for",
        "A node that may not reach other users' processes says that it is ready.",
        (
            Edit(
                "nodeagent/backends/cuda/selftest.py",
                "examine",
                "_lacks(facts) or _privilege(status())",
                "_lacks(facts)",
            ),
        ),
        Pytest(f"{_NODE}/cuda/test_selftest.py"),
        fast=True,
    ),
    Mutant(
        "old-driver-is-ready",
        "A driver that lacks what is needed is not told from one that has it.",
        (Edit("nodeagent/backends/cuda/selftest.py", "_lacks", "int(major) < OLDEST_DRIVER", "False"),),
        Pytest(f"{_NODE}/cuda/test_selftest.py"),
        fast=True,
    ),
    Mutant(
        "not-ready-is-not-said",
        "A node whose self-test has failed is used like any other.",
        (
            Edit(_DRIVEN, "DrivenBackend.find", "if self.unready:", "if False:"),
            Edit(
                "nodeagent/agent.py",
                "_capability",
                "if backend.unready else backend.name",
                "if False else backend.name",
            ),
        ),
        Pytest(f"{_NODE}/cuda/test_not_ready.py"),
    ),
    Mutant(
        "listed-is-on-the-device",
        "Whatever the account of the devices names is taken for a process that runs there.",
        (
            Edit(
                _DRIVEN,
                "DrivenBackend._sort_out",
                "                continue  # it only counts devices: nothing of it has to be moved\n",
                "                state = ProcessState.RUNNING\n",
            ),
        ),
        _failures("test_processes.py::test_d6_a_process_that_is_listed_and_has_no_context_is_left_alone"),
    ),
    Mutant(
        "only-what-was-registered",
        "What a job has started by itself is not looked for on the devices.",
        (
            Edit(
                _DRIVEN, "DrivenBackend._sort_out", "there = {pid for one in ours for pid in one.pids}", "there = set()"
            ),
        ),
        _failures("test_processes.py::test_d7_forked_children_go_and_come_with_their_job_and_a_loader_works_on"),
    ),
    Mutant(
        "control-groups-do-not-count",
        "Host memory is what the machine has, whatever the control groups of the processes allow.",
        (Edit(_MEMORY, "MachineMemory.shortage", "for folder, size in wanted.items():", "for folder, size in ():"),),
        Pytest(f"{_NODE}/test_discovery.py"),
        fast=True,
    ),
    Mutant(
        "host-memory-is-not-asked-for",
        "Nobody asks whether the host has room before something is saved.",
        (Edit(_SWITCH, "Switch._reserve", "if short and not order.directive.kill:", "if False:"),),
        Pytest(f"{_NODE}/test_refusals.py::test_host_memory"),
    ),
    Mutant(
        "known-by-its-number",
        "A process is known by its number alone, which may be another's by now.",
        (
            Edit(
                "nodeagent/procfs.py",
                "alive",
                "return one.boot_id == boot_id() and process(one.pid) == one",
                "return process(one.pid) is not None",
            ),
        ),
        _failures("test_processes.py::test_d11_a_process_id_that_is_anothers_by_now_makes_it_nobody_elses"),
    ),
    Mutant(
        "looks-forget-one-by-one",
        "Two looks at once that forget the same dead processes stumble over each other, and the agent ends.",
        (
            Edit(
                _HELPERS,
                "HelperPool.forget_dead",
                "        ending = [self._helpers.pop(pid) for pid in idle]\n"
                "        for pid in idle:\n"
                "            del self._turn[pid]\n"
                "        await asyncio.gather(*(helper.close() for helper in ending))\n",
                "        for pid in idle:\n"
                "            del self._turn[pid]\n"
                "            await self._helpers.pop(pid).close()\n",
            ),
        ),
        Pytest(f"{_NODE}/test_helpers.py::test_several_looks_may_forget_the_same_dead_at_once"),
    ),
)
