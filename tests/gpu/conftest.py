# SPDX-License-Identifier: Apache-2.0
"""Tests on real devices. They are skipped where there is none; where there is one that cannot be used they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.backends.cuda.selftest import Missing, Readiness, examine
from tests.gpu.children import Helper

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it on a machine without a device."""
    there = any(Path("/dev").glob("nvidia*")) or examine().missing is not Missing.DRIVER
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(300))
            if not there:
                item.add_marker(pytest.mark.skip(reason="this machine has neither /dev/nvidia* nor an NVIDIA driver"))


@pytest.fixture(scope="session")
def node() -> Readiness:
    """What the node can do. A device that cannot be used is a failure."""
    found = examine()
    assert found.ready, found.why
    return found


@pytest.fixture
def helper(node: Readiness) -> Iterator[Helper]:
    """One of the agent's helpers."""
    with Helper() as one:
        yield one
