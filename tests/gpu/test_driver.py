# SPDX-License-Identifier: Apache-2.0
"""The driver on real processes, through the agent's own helper."""

from __future__ import annotations

import pytest

from nodeagent.backends.cuda.selftest import Readiness
from tests.gpu.children import GIB, Helper, HelperError, Target

SIZE = 8 * GIB


def used(helper: Helper, node: Readiness) -> int:
    return sum(used for _, used, _, _ in helper.use(node.devices))


def pids(helper: Helper, node: Readiness) -> set[int]:
    return {pid for *_, found in helper.use(node.devices) for pid in found}


def test_a_process_leaves_the_device_and_comes_back_with_every_byte(helper: Helper, node: Readiness) -> None:
    empty = used(helper, node)
    with Target("plain", SIZE) as target:
        target.ready()
        before = target.ask("hash")
        refused, size = helper.call("check", target.pid)
        assert (refused, helper.state(target.pid)) == ("", "RUNNING")
        assert SIZE <= size <= SIZE + 2 * GIB
        assert target.pid in pids(helper, node)
        helper.call("lock", target.pid, timeout_ms=10_000)
        assert helper.state(target.pid) == "LOCKED"
        helper.call("checkpoint", target.pid)
        out = helper.progress
        assert helper.state(target.pid) == "PARKED"
        assert used(helper, node) <= empty + (64 << 20), "its memory is still on the device"
        assert target.pid not in pids(helper, node)
        target.send("hash")
        with pytest.raises(TimeoutError):
            target.receive(1.0)
        helper.call("restore", target.pid)
        back = helper.progress
        assert helper.state(target.pid) == "LOCKED"
        with pytest.raises(TimeoutError):
            target.receive(1.0)
        helper.call("unlock", target.pid)
        assert target.receive(60)["value"] == before
        for told in (out, back):
            done = [one for _, one, _ in told]
            assert done == sorted(done)
            assert done[-1] == told[-1][2] == size


def test_a_process_is_one_of_the_drivers_from_its_first_call_on(helper: Helper) -> None:
    with Target("host") as target:
        target.ready()
        assert helper.state(target.pid) is None
    assert helper.state(target.pid) is None, "one that has ended"
    # It has nothing on a device yet and could have at any moment, so it can be locked like any other.
    with Target("cuinit") as target:
        target.ready()
        assert helper.state(target.pid) == "RUNNING"
        for step, state in (("lock", "LOCKED"), ("checkpoint", "PARKED"), ("restore", "LOCKED"), ("unlock", "RUNNING")):
            helper.call(step, target.pid, **({"timeout_ms": 10_000} if step == "lock" else {}))
            assert helper.state(target.pid) == state


def test_managed_memory_is_refused_and_the_driver_leaves_the_process_as_it_was(helper: Helper) -> None:
    with Target("managed") as target:
        target.ready()
        refused, _ = helper.call("check", target.pid)
        assert refused.startswith("managed memory: 64 MiB")
        helper.call("lock", target.pid, timeout_ms=10_000)
        with pytest.raises(HelperError, match="NOT_SUPPORTED"):
            helper.call("checkpoint", target.pid)
        assert helper.state(target.pid) == "LOCKED"
        helper.call("unlock", target.pid)
        target.ask("step")


def test_work_that_does_not_end_makes_the_lock_fail_in_its_time_and_nothing_is_locked(helper: Helper) -> None:
    with Target("plain") as target:
        target.ready()
        target.ask("spin")
        with pytest.raises(HelperError, match="NOT_READY"):
            helper.call("lock", target.pid, timeout_ms=300)
        assert helper.state(target.pid) == "RUNNING"
        target.ask("step")


def test_steps_from_the_wrong_state_are_refused_and_change_nothing(helper: Helper) -> None:
    with Target("plain") as target:
        target.ready()
        for step in ("checkpoint", "restore", "unlock"):
            with pytest.raises(HelperError) as refused:
                helper.call(step, target.pid)
            assert not refused.value.final
            assert not refused.value.no_context
            assert helper.state(target.pid) == "RUNNING", step
        target.ask("step")
