# SPDX-License-Identifier: Apache-2.0
"""The helper: a small process beside a job's own, which keeps its session and sends its heartbeats.

A call into C that holds the interpreter's lock, a fork, a spawn: none of it reaches the helper. `hub` is the job's
side, `main` the helper's; `wire` is what they say to each other, `parent` how the helper watches the job.
"""
