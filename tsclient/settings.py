# SPDX-License-Identifier: Apache-2.0
"""Where to connect to and as whom: arguments first, then the environment.

TIMESLICE_ENDPOINTS   host:port of the coordinators, comma separated
TIMESLICE_JOB_ID      the job that this process belongs to
TIMESLICE_TTL         seconds that a session outlives its last heartbeat; 10
TIMESLICE_BACKEND     by which the job is to be saved; empty: the node's default
TIMESLICE_ON_LOSS     what to do when a turn is lost: raise (LockLost at the next check) or kill (this process); raise
TIMESLICE_PROGRESS    "line": a line on standard error says how far a wait is; nothing
TIMESLICE_IN_PROCESS  1: no helper; gRPC and the heartbeats are in this process
TIMESLICE_DISABLED    1: everything is granted at once and nobody is asked
TIMESLICE_TLS_CA      file with the certificates that the coordinators' are signed by; turns TLS on
TIMESLICE_TLS_CERT    file with this client's certificate, where the coordinators ask for one
TIMESLICE_TLS_KEY     file with its key
TIMESLICE_TOKEN_FILE  file with a bearer token, where the coordinators ask for one; needs TLS
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tsclient.errors import BadRequest

DEFAULT_TTL = 10.0
MIN_TTL, MAX_TTL = 2.0, 600.0


@dataclass(frozen=True, slots=True)
class Tls:
    """How the coordinators and this client know each other. The files may be replaced at any time: the PEM files are
    read for each connection, the token for each call.

    Attributes:
        ca: PEM file with the authorities that sign the coordinators' certificates.
        cert, key: PEM files; they go together, and are needed only where the coordinators ask for them.
        token: file with a bearer token, where they ask for that.
    """

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """
    Attributes:
        endpoints: "host:port", at least one.
        job: of this process; empty: each acquire has to name one.
        ttl: seconds, from 2 to 600.
        kill_on_loss: end this process when a turn is lost, unless an acquire says otherwise.
        progress_line: tell on standard error how far a wait is, unless an acquire says otherwise.
        in_process: no helper; gRPC and the heartbeats are in this process.
        disabled: everything is granted at once and nobody is asked; the rest does not count.
    """

    endpoints: tuple[str, ...]
    job: str = ""
    ttl: float = DEFAULT_TTL
    backend: str = ""
    tls: Tls | None = None
    kill_on_loss: bool = False
    progress_line: bool = False
    in_process: bool = False
    disabled: bool = False


def load(
    endpoints: str | Iterable[str] | None = None,
    job: str | None = None,
    ttl: float | None = None,
    backend: str | None = None,
    tls: Tls | None = None,
    in_process: bool | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """What is not given is taken from the environment.

    Raises:
        BadRequest: no endpoint, or a value that is out of range.
    """
    env = os.environ if environ is None else environ
    if _flag(env, "TIMESLICE_DISABLED"):
        return Settings((), env.get("TIMESLICE_JOB_ID", "") if job is None else job, disabled=True)
    return Settings(
        endpoints=_endpoints(env.get("TIMESLICE_ENDPOINTS", "") if endpoints is None else endpoints),
        job=env.get("TIMESLICE_JOB_ID", "") if job is None else job,
        ttl=_ttl(env.get("TIMESLICE_TTL") or DEFAULT_TTL if ttl is None else ttl),
        backend=env.get("TIMESLICE_BACKEND", "") if backend is None else backend,
        tls=_tls(env) if tls is None else tls,
        kill_on_loss=_word(env, "TIMESLICE_ON_LOSS", "raise", "kill") == "kill",
        progress_line=_word(env, "TIMESLICE_PROGRESS", "", "line") == "line",
        in_process=_flag(env, "TIMESLICE_IN_PROCESS") if in_process is None else in_process,
    )


def _word(env: Mapping[str, str], name: str, *known: str) -> str:
    said = env.get(name) or known[0]
    if said not in known:
        choice = " or ".join(word for word in known if word)
        raise BadRequest(f"{name}={said} is not known.", next_step=f"Set it to {choice}, or leave it out.")
    return said


def _flag(env: Mapping[str, str], name: str) -> bool:
    return _word(env, name, "0", "1") == "1"


def _endpoints(given: str | Iterable[str]) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else list(given)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not found:
        raise BadRequest(
            "No coordinator is named.",
            next_step="Set TIMESLICE_ENDPOINTS to host:port (comma separated), or pass them (--endpoints).",
        )
    for endpoint in found:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadRequest(f"{endpoint!r} is no host:port.", next_step="Write it as in coordinator-0:7070.")
    return found


def _ttl(given: float | str) -> float:
    try:
        ttl = float(given)
    except ValueError:
        ttl = math.nan
    if not MIN_TTL <= ttl <= MAX_TTL:  # false for a NaN too
        raise BadRequest(
            f"{given!r} is no time to live for a session.",
            next_step=f"Give seconds, from {MIN_TTL:g} to {MAX_TTL:g}.",
        )
    return ttl


def _tls(env: Mapping[str, str]) -> Tls | None:
    ca, cert, key = (env.get(f"TIMESLICE_TLS_{part}", "") for part in ("CA", "CERT", "KEY"))
    token = env.get("TIMESLICE_TOKEN_FILE", "")
    if not (ca or cert or key or token):
        return None
    if not ca or bool(cert) != bool(key):
        raise BadRequest(
            "The TLS settings are incomplete.",
            next_step="Set TIMESLICE_TLS_CA, which a token needs too, and TIMESLICE_TLS_CERT together with "
            "TIMESLICE_TLS_KEY.",
        )
    return Tls(Path(ca), *(Path(one) if one else None for one in (cert, key, token)))
