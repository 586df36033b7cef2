# SPDX-License-Identifier: Apache-2.0
"""Each scenario, short and with a fixed seed: its promises hold. The long runs are `python -m chaos run`."""

from __future__ import annotations

from functools import partial

import pytest

from chaos.__main__ import main
from chaos.scenarios import ALL, Scenario, holder
from chaos.scenarios.holder import KILL_HOLDER
from chaos.world import World

_SEED = 182  # its first fault comes early enough in a switch, so that no second one is needed


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ALL, ids=lambda one: one.name)
def test_the_promises_hold(scenario: Scenario) -> None:
    said: list[str] = []
    report = scenario.run(seed=_SEED, count=2 if scenario.name == "cancel-waiter" else 1, say=said.append)
    assert report.violations == (), "\n".join([*said, *report.facts])
    assert said


@pytest.mark.slow
def test_a_dead_holder_that_is_not_taken_off_the_device_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "World", partial(World, agent=("-m", "chaos.planted", "skip-save")))
    report = KILL_HOLDER.run(seed=_SEED, count=1, say=lambda line: None)
    assert {one.promise for one in report.violations} >= {"one at a time", "off before the next is on"}


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in ALL]
