# SPDX-License-Identifier: Apache-2.0
"""Which etcd a test session chooses, and that it really serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.etcd_server import find_etcd
from tests.support import etcd_source
from tests.support.etcd_source import Address, Binary, Container, Nothing, TestEtcd, choose, running
from tests.support.etcdctl import etcdctl


def test_the_environment_comes_first() -> None:
    assert choose({"TIMESLICE_TEST_ETCD": "10.0.0.1:2379"}) == Address("10.0.0.1:2379")
    assert isinstance(choose({"TIMESLICE_TEST_ETCD": "container"}), Container)


def test_then_the_binary() -> None:
    binary = find_etcd()
    found = choose({"PATH": "", "TIMESLICE_ETCD": str(binary.path)})
    assert found == Binary(str(binary.path), str(binary.version))


@pytest.mark.parametrize(("answers", "kind"), [(True, Container), (False, Nothing)])
def test_then_an_engine_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool, kind: type
) -> None:
    monkeypatch.setattr(etcd_source, "engine_answers", lambda: answers)
    assert isinstance(choose({"TIMESLICE_ETCD": str(tmp_path / "none")}), kind)


def test_nothing_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="need etcd: no binary"), running(Nothing("no binary")):
        pass


def test_an_address_that_nobody_serves_fails_loudly() -> None:
    with pytest.raises(OSError, match="refused"), running(Address("127.0.0.1:1")):
        pass


def test_an_address_is_used_as_it_is(etcd: TestEtcd) -> None:
    with running(Address(etcd.endpoint)) as same:
        assert same.endpoints == (etcd.endpoint,)


def test_the_session_etcd_serves_and_prefixes_are_fresh(etcd: TestEtcd, prefix: bytes) -> None:
    assert prefix.endswith(b"/")
    assert prefix != etcd_source.fresh_prefix()
    etcdctl(etcd.endpoints, "put", f"{prefix.decode()}k", "v")
    assert etcdctl(etcd.endpoints, "get", "--print-value-only", f"{prefix.decode()}k").strip() == "v"
