# SPDX-License-Identifier: Apache-2.0
"""The two distributions of this repository: what is in them, and how they are installed by others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.etcd_server import VARIABLE, find_etcd

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 300.0
_CLIENT = {"tsclient", "timeslice_proto"}
_SYSTEM = {"chaos", "coordinator", "ledger", "nodeagent"}
_PARTS = ("LICENSE", "README.md", "pyproject.toml", "client", "protos", "tsclient", *sorted(_SYSTEM))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _run(*command: str | Path, cwd: Path | None = None, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def _pip(python: str | Path, *arguments: str | Path) -> None:
    _run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources alone: what an earlier build left in a tree would get into its wheels."""
    copy = tmp_path_factory.mktemp("tree")
    leftovers = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in _PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=leftovers)
        else:
            shutil.copy(source, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheels(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels by the name of their distribution."""
    out = tmp_path_factory.mktemp("wheels")
    _pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, tree / "client", tree)
    return {path.name.split("-")[0]: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def python(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the client's wheel, what that asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    found = folder / "bin" / "python"
    _pip(found, "install", "--constraint", ROOT / "requirements/dev.txt", wheels["timeslice_client"])
    return found


def _top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.split("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def _sources(*packages: Path) -> set[str]:
    kinds = {".py", ".pyi", ".proto", ".typed"}
    return {
        str(path.relative_to(package.parent))
        for package in packages
        for path in package.rglob("*")
        if path.suffix in kinds or path.name == "py.typed"
    }


def test_the_client_is_its_two_packages_whole(wheels: dict[str, Path], tree: Path) -> None:
    assert _top_level(wheels["timeslice_client"]) == _CLIENT
    with zipfile.ZipFile(wheels["timeslice_client"]) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == _sources(tree / "tsclient", tree / "protos" / "timeslice_proto")


def test_the_system_is_the_rest_and_has_no_tests(wheels: dict[str, Path], tree: Path) -> None:
    assert _top_level(wheels["timeslice_system"]) == _SYSTEM
    with zipfile.ZipFile(wheels["timeslice_system"]) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == _sources(
            *(tree / name for name in _SYSTEM)
        )


def test_a_source_distribution_of_the_client_is_complete(tree: Path, tmp_path: Path) -> None:
    """Its packages are links in the tree, and files in what is handed on."""
    build = f"import setuptools.build_meta as b; b.build_sdist({str(tmp_path)!r})"
    _run(sys.executable, "-c", build, cwd=tree / "client")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        files = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    assert {"tsclient/__init__.py", "timeslice_proto/v1/records_pb2.py", "LICENSE", "pyproject.toml"} <= files


def test_both_have_one_version() -> None:
    projects = [
        tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
        for path in ("pyproject.toml", "client/pyproject.toml")
    ]
    versions = {project["version"] for project in projects}
    assert len(versions) == 1
    assert f"timeslice-client>={versions.pop()}" in projects[0]["dependencies"]


def test_importing_the_client_is_cheap(python: Path) -> None:
    program = (
        "import sys, time\nbegun = time.perf_counter()\nimport tsclient\n"
        "print((time.perf_counter() - begun) * 1000)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'grpc', 'google', 'rich'}))"
    )
    lines = [_run(python, "-I", "-c", program).stdout.splitlines() for _ in range(3)]
    print(f"importing tsclient takes {min(float(line[0]) for line in lines):.0f} ms")
    assert [line[1] for line in lines] == ["", "", ""]


def test_a_program_that_uses_the_wheel_is_typed(python: Path, tmp_path: Path) -> None:
    program = shutil.copy(Path(__file__).with_name("typed_example.py"), tmp_path)
    cache = tmp_path / "cache"
    options = ("--strict", "--python-executable", python, "--cache-dir", cache, "--config-file", "/dev/null")
    _run(sys.executable, "-m", "mypy", *options, program, cwd=tmp_path)
    # That the types are the wheel's, and not Any, is seen where the program is wrong.
    Path(program).write_text(Path(program).read_text(encoding="utf-8").replace("turn.token", "turn.nothing"))
    assert "nothing" in _run(sys.executable, "-m", "mypy", *options, program, cwd=tmp_path, status=1).stdout


@pytest.fixture
def with_system(python: Path, wheels: dict[str, Path]) -> Iterator[Path]:
    _pip(python, "install", "--constraint", ROOT / "requirements/dev.txt", wheels["timeslice_system"])
    yield python
    _pip(python, "uninstall", "--yes", "timeslice-system")


def test_commands_of_the_system_say_what_to_install_where_it_is_not(python: Path) -> None:
    timeslice = python.with_name("timeslice")
    for name in ("coordinator", "agent", "dev", "doctor", "repair"):
        assert "pip install timeslice-system" in _run(timeslice, name, "--an-option", "x", status=1).stderr
    assert "coordinator" in _run(timeslice, "--help").stdout
    assert (
        "pip install timeslice-system"
        in _run(python, "-I", "-c", "from tsclient import testing; testing.coordinator()", status=1).stderr
    )
    assert "TIMESLICE_ENDPOINTS" in _run(timeslice, "get", "groups", status=2).stderr


def test_the_system_goes_on_top_of_the_client(with_system: Path) -> None:
    timeslice = with_system.with_name("timeslice")
    for name in ("coordinator", "agent", "dev", "doctor", "repair"):
        assert "usage: timeslice " + name in _run(timeslice, name, "--help").stdout
    program = (
        "from tsclient import testing\n"
        "with testing.coordinator() as system, system.connect() as client:\n"
        "    print(client.acquire(system.group, timeout=60).yield_())"
    )
    etcd = f"{VARIABLE}={find_etcd().path}"  # an installed system knows nothing of the one in a checkout
    assert _run("env", etcd, with_system, "-I", "-c", program).stdout == "0\n"
    _pip(with_system, "check")
