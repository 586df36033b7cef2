# SPDX-License-Identifier: Apache-2.0
"""The table of the protocol's rules and their tests, from the tests' own names.

`python -m tests.support.rule_table` writes it into docs/protocol.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "protocol.md"
MARK = "<!-- the table below is written by `python -m tests.support.rule_table` -->\n"
REQUIRED = frozenset(range(1, 39))
"""The rules that this version carries out."""

BESIDES = {
    "test_a_second_agent_waits_and_then_takes_over": 2,
    "test_a_helper_without_its_agent_unlocks": 2,
    "test_the_next_life_waits_for_a_helper_in_mid_checkpoint": 2,
    "test_a_lock_lasts_as_long_as_a_helper": 2,
    "test_a_smaller_epoch_is_stale_also_after_a_restart": 10,
    "test_a_restarted_agent_ends_its_old_registration_first": 7,
    "test_a_foreign_registration_is_respected": 7,
    "test_a_registration_that_is_gone_is_made_anew_and_answers_by_its_new_incarnation": 7,
    "test_a_process_out_of_its_turn_is_seen_and_taken_off_by_the_next_switch": 8,
    "test_a_parked_process_that_is_gone_is_named_and_the_rest_comes_back": 9,
    "test_a_process_on_devices_of_two_groups": 12,
    "test_host_memory": 12,
    "test_commit_is_finished_by_the_next_life": 15,
    "test_what_was_locked_is_unlocked_before_etcd_is_asked": 15,
    "test_prepare_is_answered_by_the_next_life_and_can_be_released": 15,
    "test_the_proof_counts_from_when_the_beat_was_sent": 16,
    "test_a_holder_without_proof_has_lost_for_good": 16,
    "test_no_beat_is_sent_for_a_process_that_is_stopped": 16,
    "test_the_end_of_its_program_ends_the_session_at_once": 16,
    "test_resume_needs_the_secret_and_a_living_session": 17,
    "test_locks_end_by_themselves_when_the_directive_cannot_be_confirmed": 18,
    "test_kill_always_ends_it": 18,
    "test_lost_processes_come_back_for_their_own_session_alone": 5,
    "test_what_is_parked_without_a_session_is_killed_in_the_end": 21,
    "test_a_forked_child_has_no_part_in_its_parents_session_and_takes_nothing_from_it": 17,
    "test_two_jobs_that_take_two_groups_in_opposite_orders_never_wait_for_each_other": 29,
    "test_a_turn_that_is_lost_in_one_group_is_given_back_in_the_others": 29,
    "test_acquires_for_one_job_go_one_after_the_other": 37,
    "test_all_ranks_share_one_ticket_and_give_it_back_when_all_are_done": 37,
    "test_a_killed_rank_leaves_nothing_behind": 37,
    "test_the_incoming_job_is_never_locked": 38,
}
"""Tests that are named for what happens rather than for the rule that they hold."""

_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def by_rule() -> dict[int, list[tuple[str, str]]]:
    """For each rule its tests: (file, name)."""
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT / "tests").as_posix()
        for name in _TEST.findall(path.read_text()):
            numbers = re.match(r"test_rules?_(\d+(?:_and_\d+)*)", name)
            rules = [int(number) for number in numbers.group(1).split("_and_")] if numbers else []
            for rule in (*rules, *([BESIDES[name]] if name in BESIDES else [])):
                found[rule].append((file, name))
    return dict(found)


def table() -> str:
    lines = ["", "| rule | tests |", "|---|---|"]
    for rule, tests in sorted(by_rule().items()):
        by_file: defaultdict[str, list[str]] = defaultdict(list)
        for file, name in tests:
            by_file[file].append(f"`{name}`")
        cells = (f"*{file}*: {', '.join(names)}" for file, names in sorted(by_file.items()))
        lines.append(f"| {rule} | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = DOC.read_text()
    DOC.write_text(text[: text.index(MARK) + len(MARK)] + table())


if __name__ == "__main__":
    main()
