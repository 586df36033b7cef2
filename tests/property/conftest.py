# SPDX-License-Identifier: Apache-2.0
"""Schedules that Hypothesis chooses, the same in every run: a test must not fail because of where it was begun.

``pytest tests/property --hypothesis-profile=fresh`` searches others in each run. One that fails is kept in .hypothesis/
and tried first by the next such run; what is printed names it, too. ``--hypothesis-seed=N`` makes a run repeatable.
"""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("schedules", derandomize=True, deadline=None, print_blob=False)
settings.register_profile("fresh", derandomize=False, deadline=None, print_blob=True)
settings.register_profile("first-failure", settings.get_profile("schedules"), phases=(Phase.generate,))
settings.load_profile("schedules")
