# SPDX-License-Identifier: Apache-2.0
"""The options by which every program that uses the ledger is told where etcd is."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ledger.etcd import Security
from ledger.options import PASSWORD, Store, add_store_options, store_from


def told(*arguments: str, **environ: str) -> Store:
    parser = argparse.ArgumentParser()
    add_store_options(parser)
    return store_from(parser.parse_args(arguments), environ)


def test_members_prefix_and_tls_files() -> None:
    files = ("--etcd-ca", "ca.pem", "--etcd-cert", "c.pem", "--etcd-key", "c.key")
    store = told("--etcd", "a:1, https://b:2", "--prefix", "/x/", *files)
    assert store == Store(("a:1", "https://b:2"), "/x/", Security(Path("ca.pem"), Path("c.pem"), Path("c.key")))


def test_the_password_comes_from_the_file_or_the_environment_and_only_for_a_user(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" it has spaces \n")
    by_file = told("--etcd-user", "u", "--etcd-password-file", str(file), **{PASSWORD: "other"})
    assert (by_file.security.user, by_file.security.password) == ("u", " it has spaces ")
    assert told("--etcd-user", "u", **{PASSWORD: "p"}).security.password == "p"
    assert told(**{PASSWORD: "p"}).security.password is None
    assert "p4ss" not in repr(told("--etcd-user", "u", **{PASSWORD: "p4ss"}))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--prefix", "x"),
        ("--etcd", ""),
        ("--etcd", "a:1,,b:2"),
        ("--etcd", "a"),
        ("--etcd", "http://a:1", "--etcd-ca", "ca.pem"),
        ("--etcd-cert", "c.pem"),
        ("--etcd-user", "u"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_begun(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        told(*arguments)
