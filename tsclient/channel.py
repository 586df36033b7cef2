# SPDX-License-Identifier: Apache-2.0
"""gRPC channels to a coordinator, and errors as they come out of one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from tsclient.errors import DOMAIN, BadRequest, TimesliceError, from_reason
from tsclient.settings import Settings, Tls

_STATUS_DETAILS = "grpc-status-details-bin"

_SILENCE_MS = (2_000, 10_000)  # the least and the most
_OPTIONS = (
    ("grpc.http2.max_pings_without_data", 0),
    # The rotation over the endpoints has its own backoff; gRPC's would keep a channel from a replica that is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)


def silence_ms(ttl: float) -> int:
    """After how many milliseconds without a word a ping is sent, and after as many again its peer counts as gone.

    A peer that stands still, or whose machine is gone, sends no reset: only a ping that stays unanswered tells. Pings
    are sent while a stream is open. They tell earlier than beats, of which there are three in a TTL (seconds), and
    other things: a replica answers a ping whatever its etcd does. A long TTL is there for many sessions to cost little,
    so with it they are fewer.
    """
    least, most = _SILENCE_MS
    return min(max(round(ttl * 1000 / 5), least), most)


def _options(settings: Settings) -> tuple[tuple[str, int], ...]:
    silence = silence_ms(settings.ttl)
    return (
        ("grpc.keepalive_time_ms", silence),
        ("grpc.keepalive_timeout_ms", silence),
        ("grpc.http2.ping_timeout_ms", silence),
        ("grpc.http2.min_time_between_pings_ms", silence // 2),
        *_OPTIONS,
    )


def open_channel(endpoint: str, settings: Settings) -> grpc.aio.Channel:
    """A channel for asyncio. Nothing is sent before the first call."""
    options = _options(settings)
    if settings.tls is None:
        return grpc.aio.insecure_channel(endpoint, options=options)
    return grpc.aio.secure_channel(endpoint, _credentials(settings.tls), options=options)


def open_blocking_channel(endpoint: str, settings: Settings) -> grpc.Channel:
    """A channel for blocking calls. Nothing is sent before the first call."""
    options = _options(settings)
    if settings.tls is None:
        return grpc.insecure_channel(endpoint, options=options)
    return grpc.secure_channel(endpoint, _credentials(settings.tls), options=options)


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    known_by_certificate = grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca),
        private_key=_read(tls.key) if tls.key else None,
        certificate_chain=_read(tls.cert) if tls.cert else None,
    )
    if tls.token is None:
        return known_by_certificate
    known_by_token = grpc.metadata_call_credentials(_BearerToken(tls.token), "timeslice")
    return grpc.composite_channel_credentials(known_by_certificate, known_by_token)


class _BearerToken(grpc.AuthMetadataPlugin):
    """Puts the token into each call, as it is in the file then. gRPC sends it over TLS alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:  # the call fails, as one that may be made again
            callback((), error)
        else:
            callback((("authorization", f"Bearer {token}"),), None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.") from error


def from_status(
    code: grpc.StatusCode, details: str | None, trailing: Iterable[tuple[str, str | bytes]] | None, endpoint: str
) -> TimesliceError:
    """The error that a call's status stands for; without a reason of ours it says which endpoint gave it."""
    for name, value in trailing or ():
        if name != _STATUS_DETAILS or not isinstance(value, bytes):
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return from_reason(info.reason, details or "", code=code.name, metadata=info.metadata)
    return from_reason("", f"{endpoint} answers {code.name}: {details or 'no details'}.", code=code.name)


def from_aio_error(error: grpc.aio.AioRpcError, endpoint: str) -> TimesliceError:
    """As `from_status`, for an error that asyncio raised."""
    return from_status(error.code(), error.details(), tuple(error.trailing_metadata() or ()), endpoint)
