# SPDX-License-Identifier: Apache-2.0
"""Which etcd server to use: its version, whether that version is sound, and where the binary is.

Standard library only, since it runs before anything is installed. Sources of the judgement: etcd's own
release notes and its post-mortem of the 3.5.0-3.5.2 data inconsistency.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

VARIABLE = "TIMESLICE_ETCD"
CHECKOUT_FOLDER = Path(__file__).resolve().parents[1] / ".tools" / "etcd"
_VERSION_SECONDS = 20.0


class EtcdServerError(Exception):
    """An etcd server that cannot be had or does not run: a code, the cause, and what to do next."""

    code = "ETCD_SERVER"

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(f"{cause}\n  what to do: {next_step}")
        self.cause = cause
        self.next_step = next_step


class EtcdNotFoundError(EtcdServerError):
    """No etcd binary where one was looked for."""

    code = "ETCD_NOT_FOUND"


class EtcdUnsoundError(EtcdServerError):
    """A binary that is no etcd, or of a version that must not be used."""

    code = "ETCD_UNSOUND"


class Version(NamedTuple):
    """An etcd version; a pre-release counts as the release before it would (`3.6.0-rc.1` < 3.6.0)."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class Fitness(enum.Enum):
    """What a version is good for."""

    FORBIDDEN = "forbidden"
    DEVELOPMENT = "development"
    PRODUCTION = "production"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fitness and the reason for it, in words."""

    fitness: Fitness
    reason: str

    @property
    def sound(self) -> bool:
        """True if development, tests and CI may use it."""
        return self.fitness is not Fitness.FORBIDDEN


_ASK_FOR = "ask for >= 3.5.33 or >= 3.6.14 in production"


def judge(version: Version) -> Verdict:
    """Say what a version may be used for. Pure."""
    match version:
        case (3, 4, _):
            return Verdict(Fitness.FORBIDDEN, "3.4 is at its end of life and lacks fixes of its leases")
        case (3, 5, patch) if patch < 3:
            return Verdict(Fitness.FORBIDDEN, "3.5.0 to 3.5.2 can corrupt data after a crash")
        case (3, 5, patch) if patch < 23:
            return Verdict(Fitness.DEVELOPMENT, f"may confirm the keepalive of a revoked lease; {_ASK_FOR}")
        case (3, 5, patch) if patch < 28:
            return Verdict(Fitness.DEVELOPMENT, f"its authentication can be passed by; {_ASK_FOR}")
        case (3, 5, patch) if patch < 33:
            return Verdict(Fitness.DEVELOPMENT, f"a watch can outlive its user's permission; {_ASK_FOR}")
        case (3, 5, _):
            return Verdict(Fitness.PRODUCTION, "a supported 3.5")
        case (3, 6, patch) if patch < 14:
            return Verdict(Fitness.DEVELOPMENT, f"a watch can outlive its user's permission; {_ASK_FOR}")
        case (3, 6, _):
            return Verdict(Fitness.PRODUCTION, "a supported 3.6")
        case _ if version > (3, 6):
            return Verdict(Fitness.DEVELOPMENT, "newer than any version that this release was tested with")
        case _:
            return Verdict(Fitness.FORBIDDEN, "too old: the ledger needs the v3 interface of 3.5 or later")


def parse_version(text: str) -> Version | None:
    """The version in the output of `etcd --version` or in a release's name; None if there is none. Pure."""
    found = re.search(r"(?:etcd Version: |^v?)(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.]+)?", text.strip())
    if found is None:
        return None
    major, minor, patch = (int(found[i]) for i in (1, 2, 3))
    return Version(major, minor, patch - 1 if found[4] else patch)


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd server binary that was run once to learn its version."""

    path: Path
    version: Version

    @property
    def verdict(self) -> Verdict:
        """What this binary's version may be used for."""
        return judge(self.version)

    def tool(self, name: str) -> Path:
        """A tool of the same release (`etcdctl`, `etcdutl`). Raises EtcdNotFoundError."""
        beside = self.path.with_name(name)
        on_path = shutil.which(name)
        if beside.is_file():
            return beside
        if on_path is not None:
            return Path(on_path)
        raise EtcdNotFoundError(f"no {name} beside {self.path} nor on PATH", "run `make setup`")


def inspect(path: Path) -> EtcdBinary:
    """Run `path --version`. EtcdNotFoundError if there is no file, EtcdUnsoundError if it is no etcd."""
    if not path.is_file():
        raise EtcdNotFoundError(f"{path} is not a file", f"name a binary in {VARIABLE}, or run `make setup`")
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EtcdUnsoundError(f"{path} --version failed: {error}", "use another etcd binary") from error
    version = parse_version(done.stdout)
    if version is None:
        raise EtcdUnsoundError(f"{path} --version says {done.stdout[:200]!r}", "use another etcd binary")
    return EtcdBinary(path.resolve(), version)


def require_sound(binary: EtcdBinary) -> EtcdBinary:
    """Return the binary, or raise EtcdUnsoundError with the reason and what to do."""
    if not binary.verdict.sound:
        raise EtcdUnsoundError(
            f"{binary.path} is etcd {binary.version}: {binary.verdict.reason}",
            f"install etcd >= 3.5.16, or unset {VARIABLE} and run `make setup`",
        )
    return binary


def _candidates(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    on_path = shutil.which("etcd", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path)
    if (folder / "etcd").is_file():
        yield folder / "etcd"


def find_etcd(environ: Mapping[str, str] = os.environ, folder: Path = CHECKOUT_FOLDER) -> EtcdBinary:
    """The etcd to use: `$TIMESLICE_ETCD`, else a sound one on PATH, else the one that `make setup` fetched.

    A binary that the variable names is used or refused, never passed over. Raises EtcdNotFoundError when
    there is none, EtcdUnsoundError when the only ones must not be used.
    """
    named = environ.get(VARIABLE)
    if named:
        return require_sound(inspect(Path(named)))
    refused: EtcdUnsoundError | None = None
    for path in _candidates(environ, folder):
        try:
            return require_sound(inspect(path))
        except EtcdUnsoundError as error:
            refused = error
    if refused is not None:
        raise refused
    raise EtcdNotFoundError(
        f"no etcd binary: not in ${VARIABLE}, not on PATH, not in {folder}",
        "run `make setup` in a checkout, or install etcd >= 3.5.16",
    )
