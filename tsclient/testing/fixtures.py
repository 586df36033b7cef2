# SPDX-License-Identifier: Apache-2.0
"""Fixtures of pytest. In a conftest.py: `pytest_plugins = ["tsclient.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tsclient
from tsclient import testing


@pytest.fixture
def timeslice_coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[testing.Coordinator]:
    """A coordinator of the test's own, which the module-level functions of `tsclient` find for job "test"."""
    with testing.coordinator() as system:
        for name, value in system.environment().items():
            monkeypatch.setenv(name, value)
        yield system
        tsclient.close()
