# SPDX-License-Identifier: Apache-2.0
"""Getting etcd: what is read from a machine's apt sources, and what happens when no way works."""

from __future__ import annotations

import importlib.util
import io
import platform
import stat
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "get_etcd.py"


@pytest.fixture(scope="module")
def get_etcd() -> ModuleType:
    spec = importlib.util.spec_from_file_location("get_etcd", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["get_etcd"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_one_line_sources(get_etcd: ModuleType) -> None:
    text = """
    # deb http://commented.example/debian bookworm main
    deb http://one.example/debian bookworm main contrib
    deb [arch=amd64 signed-by=/keys/debian.gpg] http://two.example/debian bookworm main # a remark
    deb http://three.example/debian bookworm-updates main
    deb http://four.example/debian bookworm contrib
    deb-src http://five.example/debian bookworm main
    """
    assert list(get_etcd.parse_one_line(text, "bookworm")) == [
        get_etcd.AptSource("http://one.example/debian", None),
        get_etcd.AptSource("http://two.example/debian", "/keys/debian.gpg"),
    ]


def test_deb822_sources(get_etcd: ModuleType) -> None:
    text = """Types: deb deb-src
# a remark
URIs: http://one.example/debian http://two.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys/debian.gpg

Types: deb
URIs: http://three.example/security
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://four.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://five.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
"""
    assert list(get_etcd.parse_deb822(text, "bookworm")) == [
        get_etcd.AptSource("http://one.example/debian", "/keys/debian.gpg"),
        get_etcd.AptSource("http://two.example/debian", "/keys/debian.gpg"),
    ]


def test_a_source_keeps_its_key_and_changes_its_suite(get_etcd: ModuleType) -> None:
    source = get_etcd.AptSource("http://one.example/debian", "/keys/debian.gpg")
    assert source.line("trixie") == "deb [signed-by=/keys/debian.gpg] http://one.example/debian trixie main\n"
    assert get_etcd.AptSource("http://x.example", None).line("trixie") == "deb http://x.example trixie main\n"


def test_both_kinds_of_files_are_read(get_etcd: ModuleType, tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text("deb http://one.example bookworm main\n")
    (parts / "x.sources").write_text("Types: deb\nURIs: http://two.example\nSuites: bookworm\nComponents: main\n")
    (parts / "x.disabled").write_text("deb http://three.example bookworm main\n")
    assert [s.uri for s in get_etcd.machine_sources(tmp_path, "bookworm")] == [
        "http://one.example",
        "http://two.example",
    ]


def fake_etcd(version: str = "3.5.21") -> bytes:
    return f"#!/bin/sh\necho 'etcd Version: {version}'\n".encode()


def release_archive(get_etcd: ModuleType, folder: Path) -> Path:
    name = f"etcd-{get_etcd.RELEASE}-linux-{get_etcd._ARCHITECTURES[platform.machine()]}"
    archive = folder / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for program in get_etcd.PROGRAMS:
            entry = tarfile.TarInfo(f"{name}/{program}")
            entry.size = len(fake_etcd())
            tar.addfile(entry, io.BytesIO(fake_etcd()))
    return archive


@pytest.fixture
def release_only(get_etcd: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that is not Debian, with a release archive of its own to take; the archive."""

    def not_debian(work: Path) -> Path:
        raise get_etcd.FetchError("this is not Debian", "use the release archive")

    site = tmp_path / "site"
    site.mkdir()
    archive = release_archive(get_etcd, site)
    monkeypatch.setattr(get_etcd, "from_debian", not_debian)
    monkeypatch.setattr(get_etcd, "RELEASE_URL", f"{site.as_uri()}/{{name}}.tar.gz")
    return archive


def test_the_release_is_taken_only_with_its_digest(
    get_etcd: ModuleType, release_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tools" / "etcd"
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(get_etcd.FetchError, match="this is not Debian") as refused:
        get_etcd.main(environ, folder)
    assert "has SHA-256" in str(refused.value)
    assert "TIMESLICE_ETCD" in str(refused.value)
    assert not folder.exists()

    digest = subprocess.run(["sha256sum", release_only], capture_output=True, text=True, check=True, timeout=30)
    architecture = get_etcd._ARCHITECTURES[platform.machine()]
    monkeypatch.setitem(get_etcd.RELEASE_SHA256, architecture, digest.stdout.split()[0])
    assert get_etcd.main(environ, folder) == folder / "etcd"
    assert sorted(p.name for p in folder.iterdir()) == sorted(get_etcd.PROGRAMS)
    assert all(p.stat().st_mode & stat.S_IXUSR for p in folder.iterdir())

    release_only.unlink()
    assert get_etcd.main(environ, folder) == folder / "etcd", "a second run asks nobody"
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == ["etcd"], "nothing is left lying about"


def test_an_unsound_one_on_path_is_replaced(
    get_etcd: ModuleType, release_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "etcd"
    old.write_bytes(fake_etcd("3.4.23"))
    old.chmod(0o755)
    folder = tmp_path / "tools" / "etcd"
    with pytest.raises(get_etcd.FetchError):
        get_etcd.main({"PATH": str(tmp_path)}, folder)


def test_a_named_binary_is_refused_rather_than_replaced(get_etcd: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(get_etcd.EtcdNotFoundError):
        get_etcd.main({"PATH": "", "TIMESLICE_ETCD": str(tmp_path / "none")}, tmp_path / "tools" / "etcd")


def test_two_at_once_fetch_once(get_etcd: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tools" / "etcd"
    entered = threading.Semaphore(0)
    second_entered = threading.Event()
    calls = []

    def slow(work: Path) -> Path:
        calls.append(work)
        entered.release()
        if len(calls) > 1:
            second_entered.set()
        second_entered.wait(1.0)
        for program in get_etcd.PROGRAMS:
            (work / program).write_bytes(fake_etcd())
            (work / program).chmod(0o755)
        return work

    monkeypatch.setattr(get_etcd, "from_debian", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(get_etcd.main, {"PATH": ""}, folder)
        assert entered.acquire(timeout=30.0)
        second = pool.submit(get_etcd.main, {"PATH": ""}, folder)
        assert first.result(30.0) == second.result(30.0) == folder / "etcd"
    assert len(calls) == 1


def test_the_script_prints_one_path_and_can_run_twice_at_once() -> None:
    runs = [
        subprocess.Popen([sys.executable, SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [run.communicate(timeout=100) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], answers
    (first, _), (second, _) = answers
    assert first == second
    assert Path(first.strip()).name == "etcd"
