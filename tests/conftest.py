# SPDX-License-Identifier: Apache-2.0
"""Fixtures that every test may use: a real etcd, clusters to break, and a fresh prefix."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledger.embedded import EtcdCluster
from tests.support import etcd_source
from tests.support.account import Account
from tests.support.etcd_source import TestEtcd

_SOURCE = pytest.StashKey[etcd_source.Source]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the etcd of this session and keep its account."""
    config.stash[_SOURCE] = etcd_source.choose()
    config.pluginmanager.register(Account(), "timeslice-account")


def pytest_report_header(config: pytest.Config) -> str:
    """Say which etcd was chosen."""
    return f"etcd: {config.stash[_SOURCE]}"


@pytest.fixture(scope="session")
def etcd(pytestconfig: pytest.Config) -> Iterator[TestEtcd]:
    """One etcd for the whole session (`.endpoints`, `.endpoint`): share it, never break it, use `prefix`."""
    with etcd_source.running(pytestconfig.stash[_SOURCE]) as server:
        yield server


@pytest.fixture
def prefix() -> bytes:
    """A key prefix of this test alone, with a slash at its end."""
    return etcd_source.fresh_prefix()


@pytest.fixture
def etcd_cluster() -> Iterator[Callable[..., EtcdCluster]]:
    """Start clusters of this test alone, to be killed, frozen and restarted: the arguments of EtcdCluster."""
    with contextlib.ExitStack() as running:

        def start(*args: Any, **kwargs: Any) -> EtcdCluster:
            return running.enter_context(EtcdCluster(*args, **kwargs))

        yield start


@pytest.fixture
def etcd3members(etcd_cluster: Callable[..., EtcdCluster]) -> EtcdCluster:
    """A cluster of three members of this test alone."""
    return etcd_cluster(3)
