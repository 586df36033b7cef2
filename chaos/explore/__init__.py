# SPDX-License-Identifier: Apache-2.0
"""The explorer: every state that a small group can reach, with the production decision core in the middle.

`decide`, the commands and the transactions built from them are those that the coordinator runs (`coordinator.decide`,
`coordinator.apply.transaction`). Around them stands a model, small enough to be searched whole:

- etcd: keys with revisions; a transaction applies at once and whole, or not at all (`world`);
- replicas: what is decided on one view is written later, when others may have come before it, or never (`world`);
- agents: PREPARE, COMMIT and RELEASE as the protocol has them, with a journal and restarts (`agents`);
- clients and what befalls them (`clients`).

`invariants` says what must hold in every state and for every write, `search` goes through all of them and, since faults
are counted, shows too that everything comes to rest once they have ended. ``python -m chaos.explore --help``.
"""
