"""No client of any API finds a denied call in what leaves."""

from __future__ import annotations

import pytest

from fuzz.policies import FORBIDDEN, POLICIES, opened
from tests.attacks.clients import called, named
from tests.attacks.seeds import CALLS

CLIENTS = {"chat": 1, "messages": 2, "responses": 3, "ollama": 4}


@pytest.mark.parametrize("choice", range(len(POLICIES)))
@pytest.mark.parametrize("what", CALLS)
def test_no_denied_call_leaves(what: str, choice: int) -> None:
    body, whole = CALLS[what]
    assert "bash" in named(body)
    exchange = opened(choice, CLIENTS[what.partition(",")[0]])
    if whole:
        out = exchange.body(body)
    else:
        stream = exchange.stream()
        out = b"".join([*stream.feed(body), *stream.finish()])
    assert not (named(out) | called(out)) & FORBIDDEN
    assert exchange.report.failures == []
