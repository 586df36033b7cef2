# SPDX-License-Identifier: Apache-2.0
"""Real etcd servers as child processes, for tests and `timeslice dev`. Not for production.

They listen on 127.0.0.1 alone and die with this process, however it ends. `kill`, `restart`, `freeze` and
`thaw` are the faults that a test needs; the data and the ports of a member stay the same through all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger import child
from ledger.etcd_server import EtcdBinary, EtcdServerError, find_etcd, inspect, require_sound
from ledger.ports import ReservedPorts

_PORTS_OF_A_MEMBER = 3
_PROBE_SECONDS = 1.0
_PROBE_INTERVAL = 0.02
_TERM_SECONDS = 5.0
_LOG_TAIL_LINES = 15
# Never waits for a disk, and elects a new leader in a fifth of a second. A power cut may lose data. Leases
# can be as short as 1 s (the shortest is 1.5 election timeouts, rounded up to seconds).
_FAST = ("--unsafe-no-fsync", "--heartbeat-interval", "20", "--election-timeout", "200")


class EtcdDidNotStartError(EtcdServerError):
    """A server ended, or was not healthy within the time allowed; the cause has the tail of its log."""

    code = "ETCD_DID_NOT_START"


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """PEM files of the server; with `client_cert_auth` a client has to show a certificate of `ca`."""

    ca: Path
    cert: Path
    key: Path
    client_cert_auth: bool = False

    def arguments(self) -> list[str]:
        """The server's command line options for its client side."""
        files = {"--trusted-ca-file": self.ca, "--cert-file": self.cert, "--key-file": self.key}
        options = [f"{name}={path}" for name, path in files.items()]
        return [*options, "--client-cert-auth"] if self.client_cert_auth else options


class EtcdMember:
    """One server: its process, ports, data and log. Made by EtcdCluster."""

    def __init__(self, name: str, folder: Path, ports: Sequence[int], *, tls: EtcdTls | None) -> None:
        self.name = name
        self.data = folder / name
        self.log = folder / f"{name}.log"
        client, peer, metrics = ports
        scheme = "https" if tls is not None else "http"
        self.endpoint = f"127.0.0.1:{client}"
        self.client_url = f"{scheme}://{self.endpoint}"
        self.peer_endpoint = f"127.0.0.1:{peer}"
        # Where the other members find it, which may be a proxy before it.
        self.peer_url = f"http://{self.peer_endpoint}"
        # Health and metrics on a plain port of their own, so that asking needs no certificate.
        self.metrics_url = f"http://127.0.0.1:{metrics}"
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def spawn(self, binary: EtcdBinary, initial_cluster: str, options: Sequence[str]) -> None:
        """Start the process and return at once. A member that runs already is left as it is."""
        if self.pid is not None:
            return
        command = [
            *(str(binary.path), "--name", self.name, "--data-dir", str(self.data), "--auto-compaction-retention", "0"),
            *("--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url),
            *("--listen-peer-urls", f"http://{self.peer_endpoint}", "--initial-advertise-peer-urls", self.peer_url),
            *("--listen-metrics-urls", self.metrics_url, "--initial-cluster", initial_cluster),
            *("--logger", "zap", "--log-outputs", "stderr", "--log-level", "warn"),
            *(self._tls.arguments() if self._tls is not None else ()),
            *options,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        with self.log.open("ab") as log:
            self._process = child.spawn(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, environment=environment
            )

    def healthy(self) -> bool:
        """True if the member has a leader and serves a linearizable read. Waits at most 1 s."""
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/health", timeout=_PROBE_SECONDS) as answer:
                return bool(json.load(answer).get("health") == "true")
        except (OSError, urllib.error.URLError, ValueError):
            return False

    def says_it_leads(self) -> bool:
        """True if the member answers within 1 s and takes itself for the leader."""
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=_PROBE_SECONDS) as answer:
                return re.search(rb"^etcd_server_is_leader 1$", answer.read(), re.MULTILINE) is not None
        except (OSError, urllib.error.URLError):
            return False

    def wait_healthy(self, deadline: float) -> None:
        """Wait until `healthy`. Raises EtcdDidNotStartError, at the latest at `deadline` (time.monotonic)."""
        while not self.healthy():
            if self.pid is None:
                raise self._failure("ended by itself")
            if time.monotonic() >= deadline:
                raise self._failure("was not healthy in time")
            time.sleep(_PROBE_INTERVAL)

    def _failure(self, what: str) -> EtcdDidNotStartError:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(f"    {line}" for line in lines[-_LOG_TAIL_LINES:]) or "    (empty)"
        return EtcdDidNotStartError(
            f"etcd {self.name} {what}; the end of its log:\n{tail}",
            "mend what the log names, or raise the timeout",
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server. Raises ProcessLookupError while it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise ProcessLookupError(f"etcd {self.name} does not run")
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End the server by this signal, after 5 s by SIGKILL; returns when it is gone. Twice is once."""
        if self._process is not None:
            child.end(self._process, number, _TERM_SECONDS)


class EtcdCluster:
    """`members` etcd servers as one cluster: a context manager, or `start` and `stop`.

    Without `data_dir` the data is temporary and removed by `stop`. A kept `data_dir` can be started again
    with one member only, since the ports are new each time and peers know one another by them. `fast`
    trades durability for speed. `timeout` is the time allowed for a start, in seconds. Raises
    EtcdServerError.
    """

    def __init__(
        self,
        members: int = 1,
        *,
        data_dir: Path | None = None,
        fast: bool = True,
        tls: EtcdTls | None = None,
        binary: Path | None = None,
        options: Sequence[str] = (),
        timeout: float = 60.0,
    ) -> None:
        self.binary = require_sound(inspect(binary)) if binary is not None else find_etcd()
        self._options = (*(_FAST if fast else ()), *options)
        self._timeout = timeout
        self._temporary = data_dir is None
        self._folder = Path(tempfile.mkdtemp(prefix="timeslice-etcd-")) if data_dir is None else data_dir
        self._folder.mkdir(parents=True, exist_ok=True)
        self._reserved = ReservedPorts(members * _PORTS_OF_A_MEMBER)
        ports = self._reserved.ports
        self.members = tuple(
            EtcdMember(f"etcd{i}", self._folder, ports[i * 3 : i * 3 + _PORTS_OF_A_MEMBER], tls=tls)
            for i in range(members)
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """`host:port` of each member, as gRPC takes it."""
        return tuple(member.endpoint for member in self.members)

    @property
    def _initial_cluster(self) -> str:
        return ",".join(f"{member.name}={member.peer_url}" for member in self.members)

    def start(self) -> None:
        """Start the members that do not run; wait until all are healthy. If that fails, nothing is left."""
        try:
            for member in self.members:
                member.spawn(self.binary, self._initial_cluster, self._options)
            deadline = time.monotonic() + self._timeout
            for member in self.members:
                member.wait_healthy(deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every member, give the ports back, remove temporary data. Twice is once."""
        gently = signal.SIGKILL if self._temporary else signal.SIGTERM
        with contextlib.ExitStack() as every:
            if self._temporary:
                every.callback(shutil.rmtree, self._folder, ignore_errors=True)
            every.callback(self._reserved.close)
            for member in self.members:
                every.callback(member.end, gently)

    def kill(self, i: int) -> None:
        """SIGKILL member `i`; returns when it is gone."""
        self.members[i].end(signal.SIGKILL)

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Start member `i` again on its data and ports. Without a majority, say `wait=False`."""
        member = self.members[i]
        member.spawn(self.binary, self._initial_cluster, self._options)
        if wait:
            member.wait_healthy(time.monotonic() + self._timeout)

    def freeze(self, i: int) -> None:
        """SIGSTOP member `i`; returns when it has stopped: its sockets stay open, nobody answers."""
        member = self.members[i]
        member.send(signal.SIGSTOP)
        if (pid := member.pid) is not None:
            # A signal sent is not a process stopped: until then its threads may answer. WNOWAIT: Popen reaps.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self, i: int) -> None:
        """SIGCONT member `i`."""
        self.members[i].send(signal.SIGCONT)

    def leader(self) -> int:
        """The index of the member that leads, once exactly one says so. Raises EtcdServerError in time."""
        deadline = time.monotonic() + self._timeout
        while True:
            leaders = [i for i, member in enumerate(self.members) if member.says_it_leads()]
            if len(leaders) == 1:
                return leaders[0]
            if time.monotonic() >= deadline:
                raise EtcdServerError(f"{len(leaders)} members say that they lead", "is there a majority?")
            time.sleep(_PROBE_INTERVAL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
