# SPDX-License-Identifier: Apache-2.0
"""`timeslice coordinator`: run one replica until it is told to end."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coordinator import garbage
from coordinator.apply.errors import EngineError
from coordinator.serve import tracing
from coordinator.serve.compaction import KEEP_LEAST
from coordinator.serve.registration import ReplicaIdTaken
from coordinator.serve.security import ServerTls
from coordinator.serve.server import CoordinatorServer, PortInUse, Settings, new_replica_id
from ledger import logs
from ledger.errors import BadName
from ledger.etcd.errors import EtcdError
from ledger.keys import check_name
from ledger.options import ENDPOINTS, PASSWORD, add_store_options, store_from

_EPILOG = f"""\
examples:
  timeslice coordinator --etcd 127.0.0.1:2379 --listen 127.0.0.1:7400
  timeslice coordinator --etcd etcd-0:2379,etcd-1:2379,etcd-2:2379 --listen 0.0.0.0:7400 --advertise co-0.example:7400
  timeslice coordinator --etcd https://etcd:2379 --etcd-ca ca.pem --etcd-user timeslice \\
      --etcd-password-file /run/secrets/etcd --tls-cert co.pem --tls-key co.key --tls-ca clients.pem

Run as many replicas as you like against one etcd: any of them answers any call. SIGTERM or SIGINT sends the clients
to another replica, finishes what is being written, and ends with status 0. The files of --tls-… and --token-file are
read again when they have changed; connections that are open go on.

environment:
  {ENDPOINTS}       etcd's members, where no --etcd is given
  {PASSWORD}        the password of --etcd-user, where no file is given
  OTEL_EXPORTER_OTLP_ENDPOINT    where to send traces to; none are made without it

exit status:
  0 ended as it was told    1 etcd does not answer, or the address is taken    2 wrong arguments
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to `timeslice`."""
    add_arguments(
        subparsers.add_parser(
            "coordinator",
            help="run a coordinator replica",
            description="Run one replica of the coordinator.",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--listen",
        default="127.0.0.1:7400",
        metavar="A:P",
        help="where to serve; port 0 takes a free one (%(default)s)",
    )
    add("--advertise", default="", metavar="A:P", help="the address that clients reach it by (as it listens)")
    add("--replica-id", default="", metavar="NAME", help="unique among the replicas (made up)")
    add("--drain-seconds", type=float, default=10.0, metavar="S", help="for writes in flight at the end (%(default)s)")
    add(
        "--history-seconds",
        type=float,
        default=KEEP_LEAST,
        metavar="S",
        help="of etcd's history that are kept; older is compacted, 0: never (%(default)g, which is the least)",
    )
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(%(default)s)")
    add_store_options(parser)
    tls = parser.add_argument_group("how clients reach it").add_argument
    tls("--tls-cert", type=Path, metavar="PEM", help="certificate to show to clients")
    tls("--tls-key", type=Path, metavar="PEM", help="its key")
    tls("--tls-ca", type=Path, metavar="PEM", help="every client must show a certificate of this authority")
    tls("--token-file", type=Path, metavar="FILE", help="every client must send one of these tokens, one a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    logs.to_stderr(args.log_level.upper())
    try:
        settings = settings_of(args, os.environ)
        stop_tracing = tracing.configure(os.environ, settings.replica_id)
    except (ValueError, OSError, BadName, tracing.TracingUnavailable) as error:
        return _failed(str(error), 2)
    try:
        asyncio.run(serve(settings))
    except (EngineError, EtcdError, PortInUse, ReplicaIdTaken, OSError, ValueError) as error:
        return _failed(str(error), 1)
    finally:
        stop_tracing()
    return 0


async def serve(settings: Settings) -> None:
    """Serve until this process is told to end. Raises as `CoordinatorServer.start`."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with CoordinatorServer(settings) as replica:
        print(f"coordinator {settings.replica_id} serves on {replica.address}", flush=True)
        with garbage.old_put_aside(replica.registry.sessions):
            await told.wait()


def settings_of(args: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """The settings that the arguments mean. Raises ValueError, BadName, OSError (the password's file)."""
    if (args.tls_cert is None) != (args.tls_key is None) or (args.tls_ca is not None and args.tls_cert is None):
        raise ValueError("--tls-cert and --tls-key belong together, and --tls-ca needs both.")
    if args.token_file is not None and args.tls_cert is None:
        raise ValueError("--token-file needs --tls-cert: without TLS anybody on the way could read the tokens.")
    if args.history_seconds != 0 and not args.history_seconds >= KEEP_LEAST:
        raise ValueError(f"--history-seconds is at least {KEEP_LEAST:g}, or 0.")
    if args.drain_seconds < 0:
        raise ValueError("--drain-seconds cannot be below 0.")
    store = store_from(args, environ)
    return Settings(
        etcd=store.endpoints,
        listen=args.listen,
        advertise=args.advertise,
        prefix=store.prefix,
        security=store.security,
        tls=ServerTls(args.tls_cert, args.tls_key, args.tls_ca) if args.tls_cert is not None else None,
        token_file=args.token_file,
        replica_id=check_name("replica", args.replica_id) if args.replica_id else new_replica_id(),
        drain_within=args.drain_seconds,
        history=args.history_seconds or None,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m coordinator`."""
    parser = argparse.ArgumentParser(
        prog="python -m coordinator",
        description="Run one replica of the coordinator.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(argv)
    status: int = args.run(args)
    return status


def _failed(message: str, status: int) -> int:
    print(f"timeslice coordinator: {message}", file=sys.stderr)
    return status
