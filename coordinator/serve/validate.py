# SPDX-License-Identifier: Apache-2.0
"""What can be said of a request without looking at the ledger. Pure; each function raises `Refusal` or `BadName`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from coordinator.decide.commands import Refusal
from coordinator.serve.messages import process_of, to_record
from ledger import defaults
from ledger.codec import encode
from ledger.keys import check_device, check_name
from ledger.records import GroupSpec, NodeDevices, Policy, Process, Registered
from timeslice_proto.v1 import coordinator_pb2, records_pb2

RECORD_MAX = 512 * 1024
"""Bytes of one record. etcd takes 1.5 MiB for a whole transaction; a spec is put together with its claims."""

PROCESSES_MAX = 4_096
"""Processes of a job on one node, at most."""

GROUPS_MAX = 16
"""Groups of one acquire: their tickets are made in one transaction, which takes 128 operations."""

TRACEPARENT_MAX = 128
BOOT_ID_MAX = 64
_IF_HELD = frozenset(coordinator_pb2.IfHeld.values())
SECONDS_MAX = 10 * 365 * 86_400


def bad_request(message: str) -> Refusal:
    return Refusal("BAD_REQUEST", message)


def ttl_seconds(ttl_ms: int) -> int:
    """The TTL of a session, in whole seconds, as etcd counts them. 0 asks for the default."""
    wanted = ttl_ms or defaults.SESSION_TTL_MS
    if not defaults.SESSION_TTL_MIN_MS <= wanted <= defaults.SESSION_TTL_MAX_MS:
        least, most = defaults.SESSION_TTL_MIN_MS, defaults.SESSION_TTL_MAX_MS
        raise bad_request(f"A session's ttl_ms is from {least} to {most}, not {wanted}.")
    return math.ceil(wanted / 1000)


def lease_of(session: str) -> int:
    """The lease that a session is: its id is the lease's id as 16 hexadecimal digits.

    Raises SESSION_EXPIRED for what cannot be the id of any session, as for one that is not there.
    """
    if len(session) == 16 and all(digit in "0123456789abcdef" for digit in session):
        return int(session, 16)
    raise Refusal("SESSION_EXPIRED", "There is no such session.")


def session_process(message: records_pb2.Process) -> Process:
    process = process_of(message)
    if process is None or not _names_one(process):
        raise bad_request("A session names its process: boot_id, pid and start_time.")
    return process


def _names_one(process: Process) -> bool:
    """It can be a process. It stands in each ticket and turn of its session, so its size counts several times."""
    return process.pid >= 1 and process.start_time >= 0 and 0 < len(process.boot_id) <= BOOT_ID_MAX


def acquire(request: coordinator_pb2.AcquireRequest) -> None:
    """A well-formed acquire."""
    if request.sequence < 1:
        raise bad_request("An acquire has a sequence number from 1 on, increasing in its session.")
    check_name("job", request.job)
    if not request.groups:
        raise bad_request("An acquire names the groups that it wants.")
    for group in request.groups:
        check_name("group", group)
    if (twice := _twice(request.groups)) is not None:
        raise bad_request(f"An acquire names group {twice} twice.")
    if len(request.groups) > GROUPS_MAX:
        raise bad_request(f"An acquire names at most {GROUPS_MAX} groups.")
    if len(request.groups) > 1 and request.priority:
        raise bad_request("An acquire of several groups has no priority: its place has to be the same in all.")
    if request.backend:
        raise Refusal("UNSUPPORTED", "This version takes the node's default backend: leave `backend` empty.")
    if request.if_held not in _IF_HELD:
        raise bad_request(f"There is no if_held {request.if_held}.")
    if len(request.traceparent) > TRACEPARENT_MAX:
        raise bad_request(f"A traceparent has at most {TRACEPARENT_MAX} characters.")


def group_spec(request: coordinator_pb2.PutGroupRequest) -> GroupSpec:
    """The wish of a PutGroup."""
    check_name("group", request.name)
    nodes = tuple(to_record(one, NodeDevices) for one in request.nodes)
    if not nodes:
        raise bad_request(f"Group {request.name} has no nodes.")
    for node in nodes:
        check_name("node", node.node)
        if not node.devices:
            raise bad_request(f"Node {node.node} of group {request.name} has no devices.")
        for device in node.devices:
            check_device(device)
    if (twice := _twice(node.node for node in nodes)) is not None:
        raise Refusal("NODE_TWICE", f"Group {request.name} names node {twice} twice.", {"node": twice})
    if (twice := _twice(device for node in nodes for device in node.devices)) is not None:
        raise Refusal("DEVICE_TWICE", f"Group {request.name} names device {twice} twice.", {"device": twice})
    policy = _policy(request.policy) if request.HasField("policy") else None
    spec = GroupSpec(nodes=nodes, policy=policy, force=request.force)
    within_size(f"The spec of group {request.name}", encode(spec))
    return spec


def registered(processes: Sequence[records_pb2.Process]) -> Registered:
    if len(processes) > PROCESSES_MAX:
        raise Refusal("TOO_LARGE", f"At most {PROCESSES_MAX} processes of a job can be registered on a node.")
    found = tuple(to_record(one, Process) for one in processes)
    for process in found:
        if not _names_one(process):
            raise bad_request("A process is named by boot_id, pid and start_time.")
    if (twice := _twice(str(process.pid) for process in found)) is not None:
        raise bad_request(f"Process {twice} is named twice.")
    return Registered(processes=found)


def within_size(what: str, value: bytes) -> None:
    """Refuse a record that etcd would refuse, before it does."""
    if len(value) > RECORD_MAX:
        raise Refusal("TOO_LARGE", f"{what} has {len(value)} bytes; a record has at most {RECORD_MAX}.")


def sentence(what: str, text: str) -> str:
    """A text for people, of bounded length."""
    if len(text) > 1_000:
        raise bad_request(f"{what} has at most 1000 characters.")
    return text


def _policy(message: records_pb2.Policy) -> Policy:
    if message.lost not in records_pb2.LostPolicy.values():
        raise bad_request(f"There is no policy `lost` {message.lost}.")
    if message.node_lost not in records_pb2.NodeLostPolicy.values():
        raise bad_request(f"There is no policy `node_lost` {message.node_lost}.")
    policy = to_record(message, Policy)
    durations = ("lost_grace_ms", "parked_ttl_ms", "drop_after_ms", "prepare_ms", "commit_ms", "max_hold_ms")
    for name in durations:
        if not 0 <= getattr(policy, name) <= SECONDS_MAX * 1000:
            raise bad_request(f"The policy's {name} is out of range: {getattr(policy, name)}.")
    return policy


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
