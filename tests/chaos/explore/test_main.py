# SPDX-License-Identifier: Apache-2.0
"""The command: what it searches by default, what it prints, and how it ends."""

from __future__ import annotations

import pytest

from chaos.explore.__main__ import SETS, main
from chaos.explore.faults import FAULTS


def test_the_default_set_has_every_fault() -> None:
    assert {name for size in SETS for name, _ in size.faults} == set(FAULTS)


def test_one_model_is_searched_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "1", "--fault", "resist=2", "--missed"]) == 0
    said = capsys.readouterr().out
    assert "2 jobs, 1 nodes, 1 replicas; resist x 2: searched whole" in said
    assert "lines of the decision core that were run" in said and "never: " in said


def test_the_limit_is_told_from_a_whole_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fault", "expire", "--max-states", "50"]) == 2
    assert "not searched whole" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["meteor", "expire=x"])
def test_an_unknown_fault_is_answered_with_those_there_are(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--fault", fault])
    assert "expire" in capsys.readouterr().err
