# SPDX-License-Identifier: Apache-2.0
"""The explorer: every state that a small group can reach, with the production code in the middle.

What runs is what runs in production:

- the decision core, the commands, and the transactions built from them (`bridge`, `effects`), of which each is asked
  about every picture that it can tell apart;
- the agent: its worker, switch, plan, journal and store (`life`), put into every situation that it can tell apart, and
  run once for every way in which its driver calls may turn out, and its own death before any of its effects;
- what an agent does at its start, and `timeslice repair --restored`;
- the client's session, asked what it sends in each standing of its job's ticket (`sessions`).

Around them stands a model, small enough to be searched whole:

- etcd: keys with revisions; a transaction applies at once and whole, or not at all (`etcd`);
- replicas: what is decided on one view is written at once, or later, when others may have come before it (`world`);
- the driver, with its four states and what may go wrong with each call (`device`); helpers, which end the call in
  flight, unlock what they have locked, and keep the OS locks until then (`agents`);
- clients and operators, who may do at any time what they may do (`clients`, `operators`); their streams, of which only
  what a replica hears is here; time, which is whether a wait is over.

`invariants` says what must hold in every state and for every write, `search` goes through all of them, `symmetry`
leaves out what differs by names alone, `order` ways to name things that nobody can tell apart, `seen` what was found
with more faults left, and `rest` shows that everything ends once there are no more of them.
``python -m chaos.explore --help``.
"""
