# SPDX-License-Identifier: Apache-2.0
"""The floor: a program that does a hand-off's input and output, and nothing else.

What no lock of this design can do without, in the same order, between as many processes:

* a job's process and its helper, a SOCK_SEQPACKET pair between them, one JSON packet each way for each call;
* one gRPC stream from the helper to the replica: the same protobuf messages;
* in the replica one watch of everything, each value decoded; in the agent one watch of its node, likewise;
* the same transactions: their puts, their deletes and their compares, with values as long as the system's, since they
  *are* the system's, observed in the same run and replayed under another prefix; encoded from JSON anew for each write;
* the agent's journal: an fdatasync before PREPARE's work, one before COMMIT's (rule 15), and one behind the answer;
* in COMMIT one linearizable read of the directive before anything irreversible (rules 2 and 36);
* the calls that the rules demand of the driver, each a JSON line through a pipe to the helper process that makes it
  and over a socket to the device's process: rule 8's looks at PREPARE, at COMMIT after locking and before the incoming
  job is unlocked; where processes move also check, lock, save, verify, restore and unlock.

What it has not: any decision, any check of what it reads, any session that could be resumed, waits, hedges, positions
in the queue, progress, metrics, logs, failure handling. A step follows from the step before it, whatever that says.

    script.py   the steps, as observed        replica.py   the replica's process
    agent.py    the agent's process           device.py    the devices' process, and the agent's helper
    job.py      a job's process               helper.py    the job's helper
"""
