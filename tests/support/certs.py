# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of a test's own, and certificates for a server and a client (openssl)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Certs:
    """PEM files: the authority's certificate, and certificate and key of server and client."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=_SECONDS)


def make_certs(folder: Path, *, client_name: str = "client") -> Certs:
    """Make all of them in `folder`, valid for a day, for 127.0.0.1 and localhost; `client_name` is a CN."""
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-days", "1", "-subj", "/CN=test authority")
    _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, *authority)
    for name, subject in (("server", "localhost"), ("client", client_name)):
        extensions = folder / f"{name}.ext"
        extensions.write_text(
            "subjectAltName = IP:127.0.0.1, DNS:localhost\nextendedKeyUsage = serverAuth, clientAuth\n"
        )
        request, key = folder / f"{name}.csr", folder / f"{name}.key"
        _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", f"/CN={subject}")
        signing = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "1", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signing, "-out", folder / f"{name}.pem")
    return Certs(ca, folder / "server.pem", folder / "server.key", folder / "client.pem", folder / "client.key")
