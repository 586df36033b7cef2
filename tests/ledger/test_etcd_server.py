# SPDX-License-Identifier: Apache-2.0
"""Which etcd is judged sound, and which one is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.etcd_server import (
    EtcdNotFoundError,
    EtcdUnsoundError,
    Fitness,
    Version,
    find_etcd,
    inspect,
    judge,
    parse_version,
)


@pytest.mark.parametrize(
    ("version", "fitness"),
    [
        ((2, 3, 8), Fitness.FORBIDDEN),
        ((3, 3, 27), Fitness.FORBIDDEN),
        ((3, 4, 23), Fitness.FORBIDDEN),
        ((3, 4, 38), Fitness.FORBIDDEN),
        ((3, 5, 0), Fitness.FORBIDDEN),
        ((3, 5, 2), Fitness.FORBIDDEN),
        ((3, 5, 3), Fitness.DEVELOPMENT),
        ((3, 5, 16), Fitness.DEVELOPMENT),
        ((3, 5, 27), Fitness.DEVELOPMENT),
        ((3, 5, 32), Fitness.DEVELOPMENT),
        ((3, 5, 33), Fitness.PRODUCTION),
        ((3, 6, 0), Fitness.DEVELOPMENT),
        ((3, 6, 13), Fitness.DEVELOPMENT),
        ((3, 6, 14), Fitness.PRODUCTION),
        ((3, 7, 0), Fitness.DEVELOPMENT),
        ((4, 0, 0), Fitness.DEVELOPMENT),
    ],
)
def test_judgement(version: tuple[int, int, int], fitness: Fitness) -> None:
    verdict = judge(Version(*version))
    assert verdict.fitness is fitness
    assert verdict.sound is (fitness is not Fitness.FORBIDDEN)
    assert verdict.reason


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("etcd Version: 3.5.16\nGit SHA: abc\nGo Version: go1.24.0\n", Version(3, 5, 16)),
        ("v3.5.30", Version(3, 5, 30)),
        ("3.6.14", Version(3, 6, 14)),
        ("etcd Version: 3.5.3-rc.0\n", Version(3, 5, 2)),
        ("Go Version: go1.24.0", None),
        ("", None),
    ],
)
def test_parsing(text: str, version: Version | None) -> None:
    assert parse_version(text) == version


def fake_etcd(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True)
    program = folder / "etcd"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return program


def test_the_order_is_variable_then_path_then_folder(tmp_path: Path) -> None:
    named = fake_etcd(tmp_path / "named", "etcd Version: 3.5.16")
    on_path = fake_etcd(tmp_path / "path", "etcd Version: 3.5.17")
    fetched = fake_etcd(tmp_path / "fetched", "etcd Version: 3.5.18")
    path = {"PATH": str(on_path.parent)}
    assert find_etcd({**path, "TIMESLICE_ETCD": str(named)}, fetched.parent).path == named
    assert find_etcd(path, fetched.parent).path == on_path
    assert find_etcd({"PATH": str(tmp_path)}, fetched.parent).path == fetched


def test_an_unsound_one_on_path_is_passed_over(tmp_path: Path) -> None:
    old = fake_etcd(tmp_path / "path", "etcd Version: 3.4.23")
    fetched = fake_etcd(tmp_path / "fetched", "etcd Version: 3.5.16")
    assert find_etcd({"PATH": str(old.parent)}, fetched.parent).path == fetched


def test_an_unsound_one_alone_is_refused_with_its_reason(tmp_path: Path) -> None:
    old = fake_etcd(tmp_path / "path", "etcd Version: 3.5.1")
    with pytest.raises(EtcdUnsoundError, match=r"3\.5\.1.*corrupt"):
        find_etcd({"PATH": str(old.parent)}, tmp_path / "none")


@pytest.mark.parametrize("says", ["etcd Version: 3.5.1", "hello"])
def test_a_named_one_is_never_passed_over(tmp_path: Path, says: str) -> None:
    named = fake_etcd(tmp_path / "named", says)
    fetched = fake_etcd(tmp_path / "fetched", "etcd Version: 3.5.16")
    with pytest.raises(EtcdUnsoundError):
        find_etcd({"PATH": "", "TIMESLICE_ETCD": str(named)}, fetched.parent)


def test_none_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EtcdNotFoundError, match="make setup"):
        find_etcd({"PATH": str(tmp_path)}, tmp_path / "none")
    with pytest.raises(EtcdNotFoundError):
        find_etcd({"TIMESLICE_ETCD": str(tmp_path / "none")}, tmp_path)


def test_a_program_that_fails_is_no_etcd(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(EtcdUnsoundError, match="3"):
        inspect(program)


def test_tools_come_from_the_same_release(tmp_path: Path) -> None:
    binary = inspect(fake_etcd(tmp_path / "bin", "etcd Version: 3.5.16"))
    tool = binary.path.with_name("etcdctl")
    tool.touch()
    assert binary.tool("etcdctl") == tool
    with pytest.raises(EtcdNotFoundError):
        binary.tool("no-such-tool-anywhere")
