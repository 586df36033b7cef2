# SPDX-License-Identifier: Apache-2.0
"""Where to connect to: arguments, then the environment; and in which order the endpoints are tried."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tsclient import errors, settings
from tsclient.endpoints import MAX_DELAY, Rotation
from tsclient.errors import TimesliceError, Unavailable, Unsupported


def test_the_environment_is_used_where_nothing_is_said() -> None:
    env = {
        "TIMESLICE_ENDPOINTS": "a:1, b:2,a:1,",
        "TIMESLICE_JOB_ID": "job",
        "TIMESLICE_TTL": "20",
        "TIMESLICE_BACKEND": "pool",
        "TIMESLICE_TLS_CA": "/ca",
        "TIMESLICE_TLS_CERT": "/cert",
        "TIMESLICE_TLS_KEY": "/key",
    }
    tls = settings.Tls(Path("/ca"), Path("/cert"), Path("/key"))
    assert settings.load(environ=env) == settings.Settings(("a:1", "b:2"), "job", 20.0, "pool", tls)
    said = settings.load(endpoints=["[::1]:3"], job="x", ttl=5, backend="", environ=env)
    assert (said.endpoints, said.job, said.ttl, said.backend) == (("[::1]:3",), "x", 5.0, "")


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"TIMESLICE_ENDPOINTS": " , "},
        {"TIMESLICE_ENDPOINTS": "host"},
        {"TIMESLICE_ENDPOINTS": "host:0"},
        {"TIMESLICE_ENDPOINTS": "host:65536"},
        {"TIMESLICE_ENDPOINTS": ":7070"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TTL": "1.9"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TTL": "601"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TTL": "nan"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TTL": "soon"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TLS_CERT": "/c", "TIMESLICE_TLS_KEY": "/k"},
        {"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_TLS_CA": "/ca", "TIMESLICE_TLS_KEY": "/k"},
    ],
)
def test_what_cannot_be_right_is_refused_with_a_next_step(env: dict[str, str]) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        settings.load(environ=env)
    assert caught.value.next_step


def test_after_a_failure_the_other_endpoints_come_first() -> None:
    rotation = Rotation(["a", "b", "c"], random.Random(1))
    tried = [rotation.next()[0] for _ in range(6)]
    assert sorted(tried[:3]) == ["a", "b", "c"]
    assert tried[3:] == tried[:3]


def test_the_first_attempt_is_at_once_and_later_ones_wait_longer_with_jitter() -> None:
    rotation = Rotation(["a"], random.Random(1))
    delays = [rotation.next()[1] for _ in range(200)]
    assert delays[0] == 0
    assert all(0 <= delay <= MAX_DELAY for delay in delays)
    assert max(delays[1:3]) <= 0.2 < max(delays[20:])
    rotation.worked()
    assert rotation.next()[1] == 0


def test_that_none_is_a_coordinator_is_known_once_all_have_answered_so() -> None:
    foreign, down = TimesliceError("no such service", code="UNIMPLEMENTED"), Unavailable("connection refused")
    rotation = Rotation(["a", "b"], random.Random(1))
    assert [rotation.ended(error) for error in (foreign, down, foreign, foreign)] == [False, False, False, True]
    assert not rotation.ended(Unsupported("an older coordinator"))
