# SPDX-License-Identifier: Apache-2.0
"""Whether what a process uses grows with the sessions: the slope, and that a real process is measured."""

from __future__ import annotations

import os

import pytest

from chaos.usage import Sample, Sampler, Use, growth, slope, use_of


def test_the_slope_is_that_of_the_line() -> None:
    assert slope([(one, 3.0 * one + 7) for one in range(10)]) == pytest.approx(3.0)
    assert slope([(5, 1), (5, 2)]) == 0


def test_what_the_warming_up_takes_is_no_growth() -> None:
    memory = [1_000_000 * min(one, 200) for one in range(0, 1001, 50)]
    samples = [Sample(0, 50 * index, {"replica0": Use(one, 1)}) for index, one in enumerate(memory)]
    assert growth(samples, "replica0", warm=0.2) == 0
    leaking = [
        Sample(0, one.opened, {"replica0": Use(one.uses["replica0"].memory + 100 * one.opened, 1)}) for one in samples
    ]
    assert growth(leaking, "replica0", warm=0.2) == pytest.approx(100)


def test_a_process_is_measured() -> None:
    with Sampler({"self": os.getpid()}, lambda: 7, every=3600.0) as sampler:
        before = sampler.take().uses["self"]
        descriptors = os.pipe()
        more = bytearray(os.urandom(8 << 20))
        after = sampler.take().uses["self"]
    for one in descriptors:
        os.close(one)
    assert after.memory - before.memory > len(more) // 2
    assert after.descriptors - before.descriptors == 2
    assert [one.opened for one in sampler.samples] == [7, 7]
    assert use_of(os.getpid()).memory > 0
