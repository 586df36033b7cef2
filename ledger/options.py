# SPDX-License-Identifier: Apache-2.0
"""How a command is told where etcd is and how to get in: the same options for every program that uses the ledger."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ledger.etcd import EtcdClient, Security
from ledger.keys import DEFAULT_PREFIX, Keys

PASSWORD = "TIMESLICE_ETCD_PASSWORD"


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--etcd`` and its kin to a command."""
    store = parser.add_argument_group("etcd")
    store.add_argument(
        "--etcd",
        metavar="HOST:PORT[,…]",
        default=os.environ.get("TIMESLICE_ETCD_ENDPOINTS", "127.0.0.1:2379"),
        help="its members (default: $TIMESLICE_ETCD_ENDPOINTS, else %(default)s)",
    )
    store.add_argument("--prefix", default=DEFAULT_PREFIX, help="of all keys (default: %(default)s)")
    store.add_argument("--etcd-ca", metavar="PEM", type=Path, help="the authority that signed its certificate")
    store.add_argument("--etcd-cert", metavar="PEM", type=Path, help="this program's certificate")
    store.add_argument("--etcd-key", metavar="PEM", type=Path, help="its key")
    store.add_argument("--etcd-user", metavar="NAME", help="where authentication is on")
    store.add_argument(
        "--etcd-password-file", metavar="FILE", type=Path, help=f"holds the user's password (else: ${PASSWORD})"
    )


def store_from(args: argparse.Namespace) -> tuple[EtcdClient, Keys]:
    """A client and the keys, as the options say. To be called in the event loop that uses them.

    Raises:
        ValueError: the options contradict each other, or an endpoint is none.
        OSError: a file cannot be read.
    """
    password = os.environ.get(PASSWORD)
    if args.etcd_password_file is not None:
        password = args.etcd_password_file.read_text().strip()
    security = Security(
        ca_file=args.etcd_ca,
        cert_file=args.etcd_cert,
        key_file=args.etcd_key,
        user=args.etcd_user,
        password=password if args.etcd_user else None,
    )
    endpoints = [one.strip() for one in args.etcd.split(",") if one.strip()]
    return EtcdClient(endpoints, security=security), Keys(args.prefix)
