# SPDX-License-Identifier: Apache-2.0
"""The client's wheel beside other people's protobuf and grpcio: `make compat` (all), `make compat ARGS=--each` (one
for each protobuf, with the old and the new grpcio and every Python among them).

Each environment is made below `.tools/compat` with the wheel and the versions that its line names, and runs
`probe.py` against one live replica of this tree. An interpreter that this machine does not have is skipped, and said.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.world import World

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / ".tools" / "compat"
_PROBE = Path(__file__).with_name("probe.py")
_GROUP = "compat"

PYTHONS = ("3.10", "3.11", "3.12")
# The last release of each major version, the first one that the client takes, and today's. Any of them comes with
# any other: what a training image has was chosen by somebody else.
PROTOBUFS = ("4.25.*", "5.29.*", "6.33.*", "7.36.*")
GRPCIOS = ("1.62.3", "1.85.*")

_INSTALL_SECONDS = 300.0
_PROBE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One environment."""

    python: str
    protobuf: str
    grpcio: str

    def __str__(self) -> str:
        return f"Python {self.python}, protobuf {self.protobuf}, grpcio {self.grpcio}"

    @property
    def folder(self) -> Path:
        return _FOLDER / f"py{self.python}-protobuf{self.protobuf[0]}-grpcio{self.grpcio.rstrip('.*')}"


class CaseFailed(Exception):
    """A command of a case ended badly; the message has what it said."""


def interpreter(version: str) -> Path | None:
    """An interpreter of that version which runs; None if this machine has none. A shim may be there for nothing."""
    on_path = shutil.which(f"python{version}")
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"), reverse=True)
    for candidate in candidates:
        asked = subprocess.run(
            [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True, text=True, timeout=_PROBE_SECONDS,
        )  # fmt: skip
        if asked.stdout.strip() == version:
            return candidate
    return None


def cases(pythons: tuple[str, ...], *, each: bool) -> Iterator[Case]:
    """All of them; or each protobuf once, from the oldest with the oldest to the newest with the newest."""
    if each:
        # Of four protobufs and two grpcios: old, new, old, new; the interpreters as far as they go.
        for number, protobuf in enumerate(PROTOBUFS):
            python = pythons[min(number, len(pythons) - 1)]
            yield Case(python, protobuf, GRPCIOS[number % len(GRPCIOS)])
        return
    for one in itertools.product(pythons, PROTOBUFS, GRPCIOS):
        yield Case(*one)


def run(case: Case, python: Path, wheel: Path, endpoint: str) -> str:
    """What the probe says. Raises CaseFailed."""
    inside = case.folder / "bin" / "python"
    if not inside.exists():
        _checked([python, "-m", "venv", "--without-pip", case.folder], _INSTALL_SECONDS)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        inside,
        "--quiet",
        "--disable-pip-version-check",
        "install",
    ]
    _checked([*pip, f"protobuf=={case.protobuf}", f"grpcio=={case.grpcio}", wheel], _INSTALL_SECONDS)
    # The wheel of this tree, though its version is that of the last one.
    _checked([*pip, "--force-reinstall", "--no-deps", wheel], _INSTALL_SECONDS)
    return _checked([inside, "-I", _PROBE, endpoint, _GROUP], _PROBE_SECONDS).strip()


def build(out: Path) -> Path:
    """The client's wheel, from a copy: a build leaves things behind."""
    copy = out / "tree"
    leftovers = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    for name in ("LICENSE", "client", "protos", "tsclient"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=leftovers)
        else:
            copy.mkdir(exist_ok=True)
            shutil.copy(source, copy / name)
    command = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps")
    _checked([*command, "--no-build-isolation", "--wheel-dir", out, copy / "client"], _INSTALL_SECONDS)
    return next(out.glob("*.whl"))


def _checked(command: Sequence[str | Path], seconds: float) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise CaseFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--each", action="store_true", help="each protobuf once, with every Python and grpcio among them"
    )
    args = parser.parse_args()

    found = {version: interpreter(version) for version in PYTHONS}
    there = {version: path for version, path in found.items() if path is not None}
    for version in found.keys() - there.keys():
        print(f"skipped: Python {version} is neither on PATH nor among pyenv's versions")
    if not there:
        print("compat: none of the interpreters is on this machine", file=sys.stderr)
        return 1

    failed = passed = 0
    with tempfile.TemporaryDirectory() as scratch, World(group=_GROUP) as world:
        wheel = build(Path(scratch))
        for case in cases(tuple(there), each=args.each):
            try:
                said = run(case, there[case.python], wheel, world.endpoints[0])
            except (CaseFailed, subprocess.TimeoutExpired) as trouble:
                failed += 1
                print(f"FAILED  {case}: {trouble}", flush=True)
            else:
                passed += 1
                print(f"passed  Python {case.python}: {said}", flush=True)
    print(f"compat: {passed} passed, {failed} failed, {len(found) - len(there)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
