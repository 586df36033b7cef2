# SPDX-License-Identifier: Apache-2.0
"""Schedules that Hypothesis chooses, the same in every run: a test must not fail because of where it was begun."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("schedules", derandomize=True, deadline=None, print_blob=False)
settings.register_profile("first-failure", settings.get_profile("schedules"), phases=(Phase.generate,))
settings.load_profile("schedules")
