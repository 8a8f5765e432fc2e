"""The page `/vtc`; `tests/e2e/test_mitmweb.py` tests it in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from mitmproxy import http
from mitmproxy.addons.view import View
from mitmproxy.test import taddons

from tests.proxy.captures import CALL, capture_flow
from vtc.proxy.flows import MARKERS
from vtc.proxy.showing.page import rendering
from vtc.proxy.showing.page.rows import ExchangeRows
from vtc.reporting import OUTCOMES


def overview(*flows: http.HTTPFlow, **query: str) -> str:
    """Return the page for a query when these flows are listed."""
    view = View()
    with taddons.context(view):
        view.add(flows)
    return rendering.render_overview(view, query, ExchangeRows(), ["base URL for clients http://127.0.0.1:8088/v1"])


def test_the_latest_exchange_is_the_first() -> None:
    first, second = capture_flow("Hello", model="model-one"), capture_flow(CALL, model="model-two")
    second.request.timestamp_start = first.request.timestamp_start + 1
    shown = overview(first, second)
    assert re.findall(r'class="model">(.*?)<', shown) == ["model-two", "model-one"]
    assert ">read, hermes -&gt; tool_calls</a>" in shown
    assert f'href="/vtc/{second.id}"' in shown
    assert "2 exchanges, 1 call" in shown


def test_empty_page_has_instructions() -> None:
    assert "no exchange yet: base URL for clients http://127.0.0.1:8088/v1<" in overview()


def test_ignored_exchange_is_listed_with_its_reason() -> None:
    ignored = capture_flow("Hello", path="/v1/completions")
    shown = overview(ignored, capture_flow("Hello", path="/v1/embeddings"))
    assert "1 exchange (1 of them left alone), 0 calls" in shown
    assert shown.count('<a href="/vtc/') == 1
    assert f'<a href="/vtc/{ignored.id}">left alone: text completions have no tools' in shown
    assert "VTC does not process this" in rendering.render_detail(ignored)


def test_request_of_vtc_itself_is_no_exchange() -> None:
    again = capture_flow("Hello", seen=False)
    again.metadata["vtc.again"] = "the flow of a client"
    assert "1 exchange, 1 call" in overview(capture_flow(CALL), again)


def test_pending_exchange_is_listed_with_its_model() -> None:
    flow = capture_flow("Hello", seen=False, model="model-one")
    flow.response = None
    listed = overview(flow, capture_flow("Hello", model="model-two"))
    assert re.search("model-one.*>under way</a>", listed)
    assert re.findall(r'class="chip ([a-z]+)".*?>(all|\w[\w ]+) <b>(\d)', listed) == [
        ("all", "all", "1"),
        ("quiet", "unchanged", "1"),
        ("quiet", "under way", "1"),  # and in no other figure
    ]
    assert 'id="total" class="quiet" data-live>1 exchange, 0 calls' in listed
    assert 'aria-label="exchanges over time: 1 unchanged"' in listed
    assert "model-two (1)" in listed
    assert "model-one (" not in listed
    shown = rendering.render_detail(flow)
    assert re.search("<h1.*> under way</h1>", shown)
    assert " · model-one · " in shown
    assert f'data-live data-flow="{flow.id}"' in shown
    flow.live = False
    shown = rendering.render_detail(flow)
    assert "nothing was changed" in shown
    assert "data-live" not in shown


def test_an_address_chooses_by_outcome_model_and_client() -> None:
    made, plain, broken = (
        capture_flow(CALL, model="model-one"),
        capture_flow("Hello", model="a&b"),
        capture_flow("x", status=500),
    )
    assert re.findall(r'class="chip ([a-z]+)".*?>(all|\w[\w ]+) <b>(\d)', overview(made, plain, broken)) == [
        ("all", "all", "3"),
        ("bad", "server error", "1"),
        ("good", "rewritten", "1"),
        ("quiet", "unchanged", "1"),
    ]
    for query, flow in (
        ({"outcome": "rewritten"}, made),
        ({"outcome": "unchanged"}, plain),
        ({"outcome": "error", "client": "other"}, broken),
        ({"model": "a&b"}, plain),
    ):
        shown = overview(made, plain, broken, **query)
        assert re.findall(r'<a href="/vtc/([0-9a-f-]+)">', shown) == [flow.id]
        (label,) = re.findall('aria-label="exchanges over time: (.*)"', shown)
        assert label.startswith("1 ")  # the chart counts these
        assert "," not in label
    assert 'href="/vtc?outcome=unchanged&amp;model=a%26b"' in overview(made, plain, model="a&b")
    assert "no exchange matches" in overview(made, outcome="denied")
    assert 'aria-current="true"><span class="sign" aria-hidden="true">⊘</span>denied <b>0</b>' in overview(
        made, outcome="denied"
    )


def test_outcome_is_described_in_words_next_to_its_colour() -> None:
    assert {*OUTCOMES} > {*MARKERS}  # and outcomes without a mark
    assert len({look.word for look in OUTCOMES.values()}) == len(OUTCOMES)
    shown = overview(capture_flow(CALL))
    assert '<tr class="good">' in shown
    assert '<td class="badge"><span class="sign" aria-hidden="true">✓</span>rewritten</td>' in shown


def test_some_are_shown_at_a_time() -> None:
    one = capture_flow("Hello")
    many = [one.copy() for _ in range(rendering.ROWS_PER_PAGE + 5)]  # copies have new ids
    for seconds, flow in enumerate(many):
        flow.request.timestamp_start += seconds
    shown = overview(*many)
    assert re.findall(r'<a href="/vtc/([0-9a-f-]+)">', shown) == [flow.id for flow in reversed(many[5:])]
    assert f"1 to {rendering.ROWS_PER_PAGE} of {rendering.ROWS_PER_PAGE + 5} " in shown
    assert f'href="/vtc?from={rendering.ROWS_PER_PAGE}" rel="next"' in shown
    rest = overview(*many, **{"from": str(rendering.ROWS_PER_PAGE)})
    assert re.findall(r'<a href="/vtc/([0-9a-f-]+)">', rest) == [flow.id for flow in reversed(many[:5])]
    assert 'href="/vtc" rel="prev"' in rest
    for nonsense in ("-1", "x", "9" * 50, "²"):
        assert "1 to " in overview(*many, **{"from": nonsense})


def test_output_of_the_last_command_keeps_its_lines() -> None:
    assert "no command has printed anything yet" in rendering.render_output("")
    assert "<pre>--- a\n+&lt;b&gt;</pre>" in rendering.render_output("--- a\n+<b>")


def test_an_exchange_has_both_sides_and_its_report() -> None:
    shown = rendering.render_detail(capture_flow(f"I look.\n{CALL}", vtc_tools="prompt", vtc_dialect="hermes"))
    for title in (
        "as the client sent it",
        "as the model was given it",
        "as the model wrote it",
        "call: read, hermes -&gt; tool_calls",
        "Why",
    ):
        assert title in shown
    assert re.search(r'<td class="came changed">  &lt;tool_call&gt;\n', shown)
    assert re.search(r'<td class="went changed">  -&gt; read  call_', shown)


def test_unseen_and_other_flows_are_shown() -> None:
    assert "<td" in rendering.render_detail(capture_flow("Hello", seen=False))
    broken = capture_flow("x")
    broken.response = None
    assert "not received yet" in rendering.render_detail(broken)
    broken.response = http.Response.make(502, b"<html>bad gateway")
    assert "&lt;html&gt;bad gateway" in rendering.render_detail(broken)


def test_nothing_of_an_exchange_becomes_markup(tmp_path: Path) -> None:
    """Text of models and clients is escaped everywhere."""
    evil = "<script>alert(1)</script>"
    flow = capture_flow(f"{evil}\n{CALL}".replace("/a", evil), model=evil, vtc_tools="prompt", vtc_dialect="hermes")
    flow.comment += evil
    for shown in (overview(flow), rendering.render_detail(flow)):
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
    for name in ("outcome", "model", "client", "from"):
        assert evil not in overview(flow, **{name: f"\"'>{evil}"})
