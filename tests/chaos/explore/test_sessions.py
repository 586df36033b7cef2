# SPDX-License-Identifier: Apache-2.0
"""What the production session sends, as the model's clients ask it."""

from __future__ import annotations

import pytest

from chaos.explore.sessions import Asked, Standing, asks, asks_again_once_lost

ACQUIRE = Asked("acquire", current=True, token=True, by_itself=False)
YIELD = Asked("yield", current=True, token=True, by_itself=False)
CANCEL = Asked("cancel", current=True, token=True, by_itself=False)


@pytest.mark.parametrize(
    ("standing", "asked"),
    [
        (Standing(""), ACQUIRE),
        (Standing("WAITING"), CANCEL),
        (Standing("GRANTED"), YIELD),
        (Standing("REFUSED"), CANCEL._replace(by_itself=True)),
        (Standing("WAITING", ghost=True), CANCEL._replace(current=False, by_itself=True)),
        (Standing("GRANTED", ghost=True), CANCEL._replace(current=False, by_itself=True)),
    ],
)
def test_what_it_sends_where_its_job_stands_so(standing: Standing, asked: Asked) -> None:
    assert asks(standing) == (asked,)


def test_who_has_lost_its_turn_queues_again_by_itself() -> None:
    assert asks_again_once_lost()
