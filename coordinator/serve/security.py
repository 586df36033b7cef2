# SPDX-License-Identifier: Apache-2.0
"""How clients and a replica know each other: certificates and bearer tokens, from files that may change at any time."""

from __future__ import annotations

import hmac
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc

from coordinator.decide.commands import Refusal

log = logging.getLogger(__name__)

_SCHEME = "bearer "

# Of each file: inode, size, time of its last change. A file that was replaced or written anew has another one.
_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files. With ``ca_file`` every client has to show a certificate that this authority signed."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Read the files, now and at each handshake after one of them has changed. Raises OSError, now alone."""
        certificates = _Certificates(self)
        return grpc.dynamic_ssl_server_credentials(
            certificates.first,
            certificates.changed,  # type: ignore[arg-type]  # the stubs do not know of None, which gRPC documents
            require_client_authentication=self.ca_file is not None,
        )

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert_file, self.key_file, self.ca_file) if path is not None)

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Raises OSError."""
        authority = self.ca_file.read_bytes() if self.ca_file is not None else None
        pair = (self.key_file.read_bytes(), self.cert_file.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], authority)


class _Certificates:
    """What gRPC asks at each handshake. A certificate and a key that do not match (one of them is being replaced) it
    refuses by itself, and goes on with those before."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._stamp = _stamp(*tls.files)  # before the reading: what changes meanwhile is seen the next time
        self.first = tls.read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """None if it is as it was the last time, or cannot be read."""
        try:
            stamp = _stamp(*self._tls.files)
            if stamp == self._stamp:
                return None
            found = self._tls.read()
        except OSError as error:
            log.warning("A TLS file cannot be read; the certificate stays as it was: %s", error)
            return None
        self._stamp = stamp
        log.info("The certificate is read anew from %s.", self._tls.cert_file)
        return found


class Tokens:
    """Who may call: whoever sends one of the tokens in a file, one a line. Several, so that they can be rolled over."""

    def __init__(self, path: Path) -> None:
        """Raises OSError; ValueError if no token is in it."""
        self._path = path
        self._stamp = _stamp(path)
        self._tokens = _tokens(path)
        if not self._tokens:
            raise ValueError(f"{path} has no token in it: write one a line.")

    def check(self, header: str | None) -> None:
        """Raises Refusal (UNAUTHENTICATED) unless ``header``, of `authorization`, has a token of the file's."""
        self._refresh()
        if header is None or header[: len(_SCHEME)].lower() != _SCHEME:
            raise Refusal("UNAUTHENTICATED", "The call has no bearer token, and this service asks for one.")
        sent = header[len(_SCHEME) :].strip().encode()
        # Each is compared in whole, so that the time it takes tells nothing.
        if not sum(hmac.compare_digest(sent, one) for one in self._tokens):
            raise Refusal("UNAUTHENTICATED", "The bearer token is not one that this service knows.")

    def _refresh(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._tokens = _tokens(self._path)
        except OSError as error:
            log.warning("The tokens cannot be read and stay as they were: %s", error)
            return
        self._stamp = stamp
        log.info("%d tokens are read anew from %s.", len(self._tokens), self._path)


def _tokens(path: Path) -> tuple[bytes, ...]:
    return tuple(line.strip() for line in path.read_bytes().splitlines() if line.strip())


def _stamp(*paths: Path) -> _Stamp:
    found = (os.stat(path) for path in paths)  # noqa: PTH116 - follows links, which is how mounted secrets change
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in found)
