# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nodeagent.simnode import SimNode, sim_node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimNode]:
    """A simulated node with two devices of 80 GiB."""
    with sim_node(tmp_path) as one:
        yield one
