# SPDX-License-Identifier: Apache-2.0
"""What the scenarios notice. That they hold is shown by `make chaos-short`, and at length by `make chaos-long`."""

from __future__ import annotations

from functools import partial

import pytest

from chaos import short
from chaos.__main__ import main
from chaos.scenarios import ALL, holder
from chaos.scenarios.holder import KILL_HOLDER
from chaos.world import World

_SEED = 182


@pytest.mark.slow
def test_a_dead_holder_that_is_not_taken_off_the_device_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "World", partial(World, agent=("-m", "chaos.planted", "skip-save")))
    report = KILL_HOLDER.run(seed=_SEED, count=1, say=lambda line: None)
    assert {one.promise for one in report.violations} >= {"one at a time", "off before the next is on"}


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in ALL]


def test_the_short_run_has_scenarios_that_there_are() -> None:
    assert set(short.COUNTS) < {one.name for one in ALL}
