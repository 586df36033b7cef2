# SPDX-License-Identifier: Apache-2.0
"""How a command is told where etcd is and how to get in: the same options for every program that uses the ledger."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.etcd import EtcdClient, Security
from ledger.etcd.channel import target_of
from ledger.keys import DEFAULT_PREFIX, Keys

ENDPOINTS = "TIMESLICE_ETCD_ENDPOINTS"
PASSWORD = "TIMESLICE_ETCD_PASSWORD"


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--etcd`` and its kin to a command."""
    store = parser.add_argument_group("etcd")
    store.add_argument(
        "--etcd",
        metavar="HOST:PORT[,…]",
        default=os.environ.get(ENDPOINTS, "127.0.0.1:2379"),
        help=f"its members (default: ${ENDPOINTS}, else 127.0.0.1:2379)",
    )
    store.add_argument("--prefix", default=DEFAULT_PREFIX, help="of all keys (default: %(default)s)")
    store.add_argument("--etcd-ca", metavar="PEM", type=Path, help="the authority that signed its certificate")
    store.add_argument("--etcd-cert", metavar="PEM", type=Path, help="this program's certificate")
    store.add_argument("--etcd-key", metavar="PEM", type=Path, help="its key")
    store.add_argument("--etcd-user", metavar="NAME", help="where authentication is on")
    store.add_argument(
        "--etcd-password-file", metavar="FILE", type=Path, help=f"holds the user's password (else: ${PASSWORD})"
    )


@dataclass(frozen=True, slots=True)
class Store:
    """Where etcd is and how to get in."""

    endpoints: tuple[str, ...]
    prefix: str
    security: Security

    def open(self) -> tuple[EtcdClient, Keys]:
        """A client and the keys. To be called in the event loop that uses them.

        Raises OSError: a TLS file cannot be read.
        """
        return EtcdClient(self.endpoints, security=self.security), Keys(self.prefix)


def store_from(args: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Store:
    """What the options say.

    Raises:
        ValueError: they contradict each other, or an endpoint is none.
        OSError: the password's file cannot be read.
    """
    if not args.prefix.startswith("/"):
        raise ValueError("--prefix begins with a slash.")
    password = environ.get(PASSWORD) if args.etcd_user is not None else None
    if args.etcd_password_file is not None:
        password = args.etcd_password_file.read_text(encoding="utf-8").rstrip("\n")
    security = Security(args.etcd_ca, args.etcd_cert, args.etcd_key, args.etcd_user, password)
    endpoints = tuple(one.strip() for one in args.etcd.split(","))
    for endpoint in endpoints:
        target_of(endpoint, security)
    return Store(endpoints, args.prefix, security)
