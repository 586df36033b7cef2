# SPDX-License-Identifier: Apache-2.0
"""What real jobs see of each other's turns is the history of one lock."""

from __future__ import annotations

from chaos.dev.job import Rhythm
from chaos.linearizability import check, of_jobs
from chaos.world import World

_WITHIN = 60.0


def test_three_jobs_see_one_lock() -> None:
    with World() as world:
        jobs = [world.start_job(f"job-{name}", rhythm=Rhythm(busy=0.1, idle=0.05, kernel=0.05)) for name in "abc"]
        for job in jobs:
            job.run(5)
        for job in jobs:
            job.wait_rested(_WITHIN)
        verdict = check(of_jobs({job.name: job.lines for job in jobs}))
    assert verdict.linearizable, verdict
    assert {one.client for one in verdict.order} == {"job-a", "job-b", "job-c"}
