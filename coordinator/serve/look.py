# SPDX-License-Identifier: Apache-2.0
"""What there is, as messages: groups, nodes and jobs, from the picture of this replica. Pure."""

from __future__ import annotations

from collections import defaultdict

from coordinator.decide.commands import Refusal
from coordinator.picture import Picture
from coordinator.serve.messages import to_message
from coordinator.serve.remarks import remarks
from ledger.records import Job, ProcessState, ResidentKind
from timeslice_proto.v1 import coordinator_pb2, records_pb2


def group(picture: Picture, name: str, *, brief: bool = False) -> coordinator_pb2.Group:
    """One group; ``brief``: without queue and nodes.

    Raises:
        Refusal: NO_SUCH_GROUP.
    """
    view = picture.group(name)
    error = picture.group_error(name)
    if error is None and (view is None or (view.spec is None and view.turn is None)):
        raise Refusal("NO_SUCH_GROUP", f"There is no group {name}.", {"group": name})
    found = coordinator_pb2.Group(name=name, revision=picture.revision, note=picture.note(name))
    if error is not None:
        found.malformed, found.note = True, str(error)
    if view is None:
        return found
    found.note = " ".join(filter(None, (found.note, *remarks(view))))
    if view.spec is not None:
        found.spec.CopyFrom(to_message(view.spec.value, records_pb2.GroupSpec))
    if view.turn is not None:
        found.turn.CopyFrom(to_message(view.turn.value, records_pb2.Turn))
    found.waiting = len(view.tickets.waiting)
    if brief:
        return found
    for ticket in view.tickets.in_order():
        entry = found.queue.add(job=ticket.name, revision=ticket.create)
        entry.ticket.CopyFrom(to_message(ticket.value, records_pb2.Ticket))
    for name_of_node in sorted(view.nodes):
        state = view.nodes[name_of_node]
        node = found.nodes.add(node=name_of_node, alive=state.agent is not None)
        if state.directive is not None:
            node.directive.CopyFrom(to_message(state.directive.value, records_pb2.Directive))
        if state.ack is not None:
            node.ack.CopyFrom(to_message(state.ack.value, records_pb2.Ack))
        if state.processes is not None:
            node.processes.CopyFrom(to_message(state.processes.value, records_pb2.Processes))
    return found


def groups(picture: Picture) -> coordinator_pb2.ListGroupsResponse:
    found = [group(picture, name, brief=True) for name in picture.group_names()]
    return coordinator_pb2.ListGroupsResponse(groups=found)


def nodes(picture: Picture) -> coordinator_pb2.ListNodesResponse:
    found = coordinator_pb2.ListNodesResponse()
    for name, agent in picture.nodes().items():
        drain = picture.drain(name)
        node = found.nodes.add(node=name, alive=agent is not None, draining=drain is not None)
        if drain is not None:
            node.drain_why = drain.value.why
        if agent is not None:
            node.incarnation = agent.create
            node.agent.CopyFrom(to_message(agent.value, records_pb2.Agent))
    return found


def jobs(picture: Picture, only: str) -> coordinator_pb2.ListJobsResponse:
    """The jobs of one group, or of all: those with a record, a ticket, a process or the residency.

    Raises:
        Refusal: NO_SUCH_GROUP.
    """
    if only and picture.spec(only) is None and picture.turn(only) is None:
        raise Refusal("NO_SUCH_GROUP", f"There is no group {only}.", {"group": only})
    found = coordinator_pb2.ListJobsResponse()
    for name in [only] if only else picture.group_names():
        found.jobs.extend(_jobs_of(picture, name))
    return found


def _jobs_of(picture: Picture, name: str) -> list[coordinator_pb2.JobView]:
    view = picture.group(name)
    if view is None:
        return []
    processes: defaultdict[str, list[int]] = defaultdict(list)  # by job: the bytes of each process
    for state in view.nodes.values():
        for one in state.processes.value.jobs if state.processes is not None else ():
            living = [process for process in one.processes if process.state is not ProcessState.FAILED]
            processes[one.job] += [process.bytes for process in living]
    turn = view.turn.value if view.turn is not None else None
    holder = turn.holder.job if turn is not None and turn.holder is not None else ""
    resident = ""
    if turn is not None and turn.resident is not None and turn.resident.kind is ResidentKind.JOB:
        resident = turn.resident.job
    names = {*processes, *view.jobs, *view.tickets.by_job, holder, resident} - {""}
    return [
        coordinator_pb2.JobView(
            group=name,
            job=job,
            record=to_message(view.jobs[job].value if job in view.jobs else Job(), records_pb2.Job),
            resident=job == resident,
            holder=job == holder,
            processes=len(processes[job]),
            bytes=sum(processes[job]),
        )
        for job in sorted(names)
    ]
