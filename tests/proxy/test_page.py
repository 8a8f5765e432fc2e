"""The page `/vtc`; `tests/e2e/test_mitmweb.py` has it in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from mitmproxy import http
from mitmproxy.addons.view import View
from mitmproxy.test import taddons

from tests.proxy.test_replaying import CALL, captured
from vtc.proxy import page
from vtc.proxy.stats import Stats


def listed(*flows: http.HTTPFlow) -> tuple[View, Stats]:
    view, stats = View(), Stats()
    with taddons.context(view):
        view.add(flows)
    for flow in flows:
        if (report := flow.metadata.get("vtc", {})).get("client"):  # others were left alone
            stats.add(report)
    return view, stats


def test_the_latest_exchange_is_the_first() -> None:
    first, second = captured("Hello", model="model-one"), captured(CALL, model="model-two")
    second.request.timestamp_start = first.request.timestamp_start + 1
    shown = page.overview(*listed(first, second))
    assert shown.index("model-two") < shown.index("model-one")
    assert "vtc: read, hermes -&gt; tool_calls" in shown
    assert f'href="/vtc/{second.id}"' in shown
    assert "2 exchanges, 1 call" in shown


def test_without_exchanges_it_says_what_to_do() -> None:
    assert "no exchange yet: give the client VTC" in page.overview(*listed())


def test_an_exchange_that_is_left_alone_is_listed_with_the_reason() -> None:
    left = captured("Hello", path="/v1/completions")
    shown = page.overview(*listed(left, captured("Hello", path="/v1/embeddings")))
    assert "1 exchange" not in shown
    assert shown.count('href="/vtc/') == 1
    assert f'<a href="/vtc/{left.id}">vtc: left alone: text completions have no tools' in shown
    assert "this is not read" in page.detail(left)


def test_an_exchange_under_way_is_told_as_such_with_its_model() -> None:
    flow = captured("Hello", seen=False, model="model-one")
    flow.response = None
    assert re.search("model-one.*>under way</a>", page.overview(*listed(flow)))
    shown = page.detail(flow)
    assert re.search("<h1.*>under way</h1>", shown)
    assert " · model-one · " in shown
    assert 'http-equiv="refresh"' in shown
    flow.live = False
    shown = page.detail(flow)
    assert "nothing was changed" in shown
    assert 'http-equiv="refresh"' not in shown


def test_what_the_last_command_said_keeps_its_lines() -> None:
    assert "no command has said anything yet" in page.said("")
    assert "<pre>--- a\n+&lt;b&gt;</pre>" in page.said("--- a\n+<b>")


def test_an_exchange_has_both_sides_and_its_report() -> None:
    shown = page.detail(captured(f"I look.\n{CALL}", vtc_tools="prompt", vtc_dialect="hermes"))
    for title in (
        "as the client sent it",
        "as the model was given it",
        "as the model wrote it",
        "call: read, hermes -&gt; tool_calls",
        "Why",
    ):
        assert title in shown
    assert re.search(r'<td class="came changed">  &lt;tool_call&gt;</td>', shown)
    assert re.search(r'<td class="went changed">  -&gt; read  call_', shown)


def test_what_was_not_seen_or_is_no_reply_is_shown_all_the_same() -> None:
    assert "<td" in page.detail(captured("Hello", seen=False))
    broken = captured("x")
    broken.response = None
    assert "not there yet" in page.detail(broken)
    broken.response = http.Response.make(502, b"<html>bad gateway")
    assert "&lt;html&gt;bad gateway" in page.detail(broken)


def test_nothing_of_an_exchange_becomes_markup(tmp_path: Path) -> None:
    """What models and clients write is text, wherever it stands."""
    evil = "<script>alert(1)</script>"
    flow = captured(f"{evil}\n{CALL}".replace("/a", evil), model=evil, vtc_tools="prompt", vtc_dialect="hermes")
    flow.comment += evil
    for shown in (page.overview(*listed(flow)), page.detail(flow)):
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
