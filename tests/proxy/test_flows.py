"""VTC's view of flows, live and from a file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.flow import Error
from mitmproxy.io import FlowWriter
from mitmproxy.test import tflow, tutils

from vtc.proxy import flows
from vtc.reporting import Bodies


def make_flow(content: bytes = b"went", path: str = "/v1/chat/completions?a=b") -> http.HTTPFlow:
    headers = http.Headers(user_agent="Cline/1", host="model.example:8000")
    return tflow.tflow(req=tutils.treq(method=b"POST", path=path.encode(), headers=headers, content=content))


def test_facts() -> None:
    found = flows.read_facts(make_flow())
    assert (found.user_agent, found.host, found.path) == ("Cline/1", "model.example", "/v1/chat/completions?a=b")
    assert found.headers["user-agent"] == "Cline/1"


def test_which_api() -> None:
    assert flows.find_client_api(make_flow()) is not None
    assert flows.find_client_api(make_flow(path="/v1/embeddings")) is None


@pytest.mark.parametrize("path", ["/v1/chat", "/v1/chat?a=b", "/v1/chat?%6bey=k%2Fk", "/v1/chat?a=b&access_token=kk"])
def test_the_path_that_was_asked_is_kept_without_its_keys(path: str) -> None:
    """The keys are in the moved path, and return from there when the flow is replayed."""
    flow = make_flow(path=path)
    flows.change_path(flow, path.replace("/v1/chat", "/api/chat"))
    assert flow.request.path.startswith("/api/chat")
    assert "=k" not in str(flow.metadata)
    flows.restore_path(flow)
    assert (flow.request.path, flow.metadata) == (path, {})


def test_both_sides_of_a_flow() -> None:
    flow = make_flow()
    assert flows.get_bodies(flow, "request") == Bodies(None, b"went")
    assert flows.get_bodies(flow, "reply") is None
    flow.metadata[flows.RECEIVED_BODY["request"]] = b"came"
    assert flows.get_bodies(flow, "request") == Bodies(b"came", b"went")
    flow.response = http.Response.make(200, b"reply")
    assert flows.get_bodies(flow, "reply") == Bodies(None, b"reply")


def test_body_as_received() -> None:
    flow = make_flow()
    assert flows.get_original(flow, "request") == b"went"
    flow.metadata[flows.METADATA] = {"sizes": {"request_came": 5, "request_went": 4}}
    with pytest.raises(ValueError, match="the request was changed and its original not stored"):
        flows.get_original(flow, "request")
    flow.metadata[flows.RECEIVED_BODY["request"]] = b"came!"
    assert flows.get_original(flow, "request") == b"came!"
    with pytest.raises(ValueError, match="the flow has no reply"):
        flows.get_original(flow, "reply")


def test_flows_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "flows").open("wb") as file:
        for flow in (make_flow(b"1"), tflow.ttcpflow(), make_flow(b"2")):
            FlowWriter(file).add(flow)
    with (tmp_path / "flows").open("rb") as file:
        assert [flow.request.content for flow in flows.load_flows(file)] == [b"1", b"2"]


@pytest.mark.parametrize("data", [b"nothing of the kind", b"{", b"5:"])
def test_other_file_is_no_file_of_flows(data: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as flows"):
        list(flows.load_flows(io.BytesIO(data)))


def test_an_empty_file_has_no_flows() -> None:
    assert list(flows.load_flows(io.BytesIO())) == []


@pytest.mark.parametrize(
    ("summary", "model", "comment", "happened"),
    [
        ("vtc: read, tag -> cline", "qwen3:8b", "vtc: qwen3:8b: read, tag -> cline", "read, tag -> cline"),
        ("vtc (observing): read", "qwen3", "vtc (observing): qwen3: read", "(observing) read"),
        ("", "qwen3", "vtc: qwen3: nothing was changed", "nothing was changed"),
        ("vtc: left alone: no JSON", "", "vtc: left alone: no JSON", "left alone: no JSON"),
        ("vtc: read", "m" * 50, f"vtc: {'m' * 39}…: read", "read"),
    ],
)
def test_a_comment_names_the_model_first(summary: str, model: str, comment: str, happened: str) -> None:
    flow = make_flow()
    flow.metadata[flows.METADATA] = {"asked": model}
    flow.comment = flows.format_comment(summary, model)
    assert (flow.comment, flows.strip_comment_prefix(flow)) == (comment, happened)


def test_users_comment_is_unchanged() -> None:
    flow = make_flow()
    flow.comment = "see: this one"
    assert flows.strip_comment_prefix(flow) == "see: this one"


@pytest.mark.parametrize(("comment", "mark"), [("", ""), ("mine was here", ":star:"), ("mine; and hers", "")])
def test_comments_and_marks_of_others_stay(comment: str, mark: str) -> None:
    flow = make_flow()
    flow.comment, flow.marked = comment, mark
    before = f"{comment}; " if comment else ""
    for own in ("vtc: buffering", "vtc: read"):
        flows.annotate(flow, own, ":hammer:")
        assert (flow.comment, flow.marked) == (f"{before}{own}", mark or ":hammer:")
    assert flows.strip_comment_prefix(flow) == f"{before}read"
    flow = http.HTTPFlow.from_state(flow.get_state())
    flows.annotate(flow, "", "")
    assert (flow.comment, flow.marked) == (comment, mark)


@pytest.mark.parametrize(
    ("message", "is_connected", "expected"),
    [
        ("Client disconnected.", False, True),
        ("stream reset by client (CANCEL)", True, True),
        ("peer closed connection", False, True),
        ("peer closed connection", True, False),
        ("Server disconnected.", True, False),
        (None, True, False),
    ],
)
def test_a_client_that_has_left_is_recognized(message: str | None, is_connected: bool, expected: bool) -> None:
    flow = make_flow()
    flow.error = Error(message) if message else None
    flow.client_conn.state = ConnectionState.OPEN if is_connected else ConnectionState.CLOSED
    assert flows.has_client_left(flow) is expected
