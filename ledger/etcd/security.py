# SPDX-License-Identifier: Apache-2.0
"""How the client proves who it is, and how it knows etcd."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Security:
    """TLS files (PEM) and the login. Any of them alone is fine, but a certificate needs its key and a user
    its password.

    Attributes:
        ca_file: the authority that signed etcd's certificate; None: the system's authorities.
        cert_file, key_file: the client's certificate and key, where etcd asks for them.
        user, password: the login, where etcd's authentication is on.

    Raises:
        ValueError: one half of a pair was given.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")
        if (self.user is None) != (self.password is None):
            raise ValueError("a user needs a password, and a password a user")

    @property
    def has_tls_files(self) -> bool:
        return self.ca_file is not None or self.cert_file is not None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises OSError when one cannot be read."""

        def read(file: Path | None) -> bytes | None:
            return None if file is None else file.read_bytes()

        return grpc.ssl_channel_credentials(read(self.ca_file), read(self.key_file), read(self.cert_file))
