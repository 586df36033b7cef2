# SPDX-License-Identifier: Apache-2.0
"""The methods of the service `Coordinator`. Errors leave them as exceptions; the interceptor makes statuses of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc.aio

from coordinator.apply.engine import Applied
from coordinator.apply.errors import EngineBehind
from coordinator.decide import Decision, GroupView, commands
from coordinator.decide.commands import Nothing, Refusal
from coordinator.picture import Picture
from coordinator.serve import look, validate
from coordinator.serve.blocking import BlockingAcquire
from coordinator.serve.groups import delete_group, put_group
from coordinator.serve.services import Services
from coordinator.serve.sessions import WITHIN, beat_within
from coordinator.serve.stream import SessionStream
from coordinator.serve.watching import GroupWatch
from coordinator.serve.writing import write_over
from ledger.codec import encode
from ledger.etcd.txn import Delete, Put, exists
from ledger.keys import check_name
from ledger.records import Drain, Registered
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class CoordinatorService(coordinator_pb2_grpc.CoordinatorServicer):
    def __init__(self, services: Services) -> None:
        self._services = services
        self._engine = services.engine

    # ------------------------------------------------------------------------------------------------ the lock

    # A stream's handler may write to its context rather than be a generator, which the stubs do not know.
    async def Session(self, request_iterator: object, context: Context) -> None:  # type: ignore[override] # noqa: N802
        await SessionStream(self._services, context).run()

    async def OpenSession(self, request: pb.OpenRequest, context: Context) -> pb.Opened:  # noqa: N802
        live, secret = await self._services.sessions.open(request)
        return pb.Opened(session=live.session, secret=secret, ttl_ms=live.ttl_ms, replica=self._engine.replica_id)

    async def Beat(self, request: pb.BeatRequest, context: Context) -> pb.BeatConfirmed:  # noqa: N802
        sessions = self._services.sessions
        kept = await sessions.hear(request.session, request.secret)
        ttl_ms = await sessions.beat(request.session, within=beat_within(kept.value.ttl_ms))
        if request.prune:
            prune = sessions.prune(request.session, request.last_sequence, set(request.wanted))
            self._services.registry.spawn(prune, f"what session {request.session} has forgotten is given back")
        return pb.BeatConfirmed(number=request.number, ttl_ms=ttl_ms)

    async def CloseSession(self, request: pb.CloseRequest, context: Context) -> pb.Closed:  # noqa: N802
        await self._services.sessions.prove(request.session, request.secret)
        await self._services.sessions.close(request.session, abandoned=request.abandoned)
        return pb.Closed()

    async def Acquire(self, request: pb.AcquireCall, context: Context) -> pb.Granted:  # noqa: N802
        session = await self._services.sessions.prove(request.session, request.secret)
        return await BlockingAcquire(self._services, session, request.acquire).run()

    async def Yield(self, request: pb.YieldCall, context: Context) -> pb.Yielded:  # noqa: N802
        await self._services.sessions.prove(request.session, request.secret)
        one, waiters = getattr(request, "yield"), 0

        def ask(view: GroupView) -> Decision | Nothing:
            nonlocal waiters
            waiters = len(view.tickets.waiting)
            return commands.give_back(view, one.job, request.session, one.token)

        done = await self._engine.command(check_name("group", one.group), ask, within=WITHIN)
        again = not isinstance(done, Applied)
        return pb.Yielded(sequence=one.sequence, group=one.group, waiters=waiters, again=again)

    async def RegisterProcesses(  # noqa: N802
        self, request: pb.RegisterProcessesRequest, context: Context
    ) -> pb.RegisterProcessesResponse:
        for kind, name in (("group", request.group), ("job", request.job), ("node", request.node)):
            check_name(kind, name)
        record = encode(validate.registered(request.processes))
        validate.within_size("The list of processes", record)
        spec = self._engine.picture.spec(request.group)
        if spec is not None and all(one.node != request.node for one in spec.value.nodes):
            about = {"group": request.group, "node": request.node}
            raise Refusal("NO_SUCH_NODE", f"Group {request.group} has no node {request.node}.", about)
        key = self._engine.keys.registered(request.node, request.group, request.job)
        op = Put(key, record) if request.processes else Delete(key)
        there = exists(self._engine.keys.spec(request.group))
        if await write_over(self._engine.client, op, Registered, there) is None:
            raise Refusal("NO_SUCH_GROUP", f"There is no group {request.group}.", {"group": request.group})
        return pb.RegisterProcessesResponse()

    # ------------------------------------------------------------------------------------------------ what there is

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:  # noqa: N802
        return look.groups(self._live())

    async def GetGroup(self, request: pb.GetGroupRequest, context: Context) -> pb.Group:  # noqa: N802
        return look.group(self._live(), check_name("group", request.name))

    async def WatchGroups(self, request: pb.WatchGroupsRequest, context: Context) -> None:  # type: ignore[override] # noqa: N802
        for name in request.names:
            check_name("group", name)
        await GroupWatch(self._services, frozenset(request.names)).run(context.write)

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:  # noqa: N802
        return look.nodes(self._live())

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:  # noqa: N802
        return look.jobs(self._live(), check_name("group", request.group) if request.group else "")

    # ------------------------------------------------------------------------------------------------ administration

    async def PutGroup(self, request: pb.PutGroupRequest, context: Context) -> pb.Group:  # noqa: N802
        spec = validate.group_spec(request)
        # Several transactions that belong together: they go on although the caller may leave.
        put = put_group(self._engine, request.name, spec)
        revision = await asyncio.shield(self._services.registry.spawn(put, f"group {request.name} is put"))
        await self._services.sessions.caught_up(revision)
        return look.group(self._engine.picture, request.name)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.DeleteGroupResponse:  # noqa: N802
        name = check_name("group", request.name)
        await delete_group(self._engine, name, force=request.force)
        return pb.DeleteGroupResponse()

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.Group:  # noqa: N802
        return await self._administer(request.group, lambda view: commands.pause(view, paused=True))

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.Group:  # noqa: N802
        return await self._administer(request.group, lambda view: commands.pause(view, paused=False))

    async def Evict(self, request: pb.EvictRequest, context: Context) -> pb.Group:  # noqa: N802
        check_name("job", request.job)
        why = validate.sentence("The reason of an eviction", request.why)
        found = await self._administer(request.group, lambda view: commands.evict(view, request.job))
        log.info(
            "Job %s of group %s was evicted by an operator: %s", request.job, request.group, why or "no reason given"
        )
        return found

    async def Unquarantine(self, request: pb.UnquarantineRequest, context: Context) -> pb.UnquarantineResponse:  # noqa: N802
        check_name("job", request.job)
        await self._administer(
            request.group, lambda view: commands.unquarantine(view, request.job, force=request.force)
        )
        return pb.UnquarantineResponse()

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> pb.DrainNodeResponse:  # noqa: N802
        node = check_name("node", request.node)
        if node not in self._engine.picture.nodes():
            raise Refusal("NO_SUCH_NODE", f"No node {node} is known.", {"node": node})
        key = self._engine.keys.drain(node)
        why = validate.sentence("The reason of a drain", request.why)
        drain = Drain(since=datetime.now(UTC).isoformat(timespec="seconds"), why=why)
        op = Delete(key) if request.undrain else Put(key, encode(drain))
        revision = await write_over(self._engine.client, op, Drain)
        assert revision is not None, "nothing else is compared"
        await self._services.sessions.caught_up(revision)
        return pb.DrainNodeResponse()

    async def _administer(self, group: str, ask: Callable[[GroupView], Decision | Nothing]) -> pb.Group:
        """Carry out an operator's command, and show the group as it is then."""
        done = await self._engine.command(check_name("group", group), ask, within=WITHIN)
        if isinstance(done, Applied):
            await self._services.sessions.caught_up(done.revision)
        return look.group(self._engine.picture, group)

    def _live(self) -> Picture:
        """The picture, while it is current. Raises EngineBehind."""
        self._engine.view.settle()  # what rests for the sake of an answer is no longer kept from who looks
        if not self._engine.picture.live:
            raise EngineBehind("This replica's view of etcd is not current.")
        return self._engine.picture
