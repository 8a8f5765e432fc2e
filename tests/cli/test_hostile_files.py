"""Files that others made: whatever stands in them, a command reads them or says in a line why it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mitmproxy import http
from mitmproxy.io import FlowWriter

from tests.apis import chat
from tests.e2e.conftest import read_once
from tests.proxy.captures import CALL, capture_flow
from vtc.cli import main

__all__ = ["read_once"]

DEEP = 100_000
NESTED = b"[" * DEEP + b"]" * DEEP
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
REPLY = {"id": "1", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant"}}]}


def flow(change: Callable[[http.HTTPFlow], None] = lambda _: None) -> Callable[[Path], bytes]:
    """Make a file with one flow, as VTC captured it and someone changed it."""

    def write(folder: Path) -> bytes:
        made = capture_flow(CALL)
        change(made)
        path = folder / "made"
        with path.open("wb") as file:
            FlowWriter(file).add(made)
        return path.read_bytes()

    return write


def reported(**fields: Any) -> Callable[[Path], bytes]:
    """Make one whose report holds other values."""
    return flow(lambda made: made.metadata["vtc"].update(fields))


def metadata(**fields: Any) -> Callable[[Path], bytes]:
    return flow(lambda made: made.metadata.update(fields))


def asked(content: bytes, path: str = "/v1/chat/completions") -> Callable[[Path], bytes]:
    def change(made: http.HTTPFlow) -> None:
        made.metadata.clear()
        made.request.content, made.request.path = content, path

    return flow(change)


def replied(content: bytes | None, **headers: str) -> Callable[[Path], bytes]:
    def change(made: http.HTTPFlow) -> None:
        made.metadata.clear()
        made.response = http.Response.make(200, b"", {"content-type": "application/json", **headers})
        made.response.raw_content = content

    return flow(change)


def case(**fields: Any) -> bytes:
    return json.dumps([{"name": "it", "text": CALL, **fields}]).encode()


def har(**entry: Any) -> bytes:
    return json.dumps({"log": {"entries": [entry]}}).encode()


FILES: dict[str, bytes | Callable[[Path], bytes]] = {
    **{f"report.{key}={value!r}": reported(**{key: value}) for key, value in (
        ("sizes", "x"), ("sizes", {"request_came": "x"}), ("asked", 5), ("settings", [1]), ("settings", {"tools": 5}),
        ("settings", {"upstream_api": 5}), ("server_api", ["x"]), ("calls", "x"), ("calls", [{}]),
        ("request", {"a": 1}),
        ("prefix", {"what": "x"}), ("policies", [{"count": "x"}]), ("unread", {"text": 5}), ("form", None),
    )},
    **{f"metadata.{key}={value!r}": metadata(**{key: value}) for key, value in (
        ("vtc", "x"), ("vtc", ["x"]), ("vtc_request", 5), ("vtc_reply", "x"), ("vtc_path", 5), ("vtc_path", ["/v1"]),
        ("vtc.again", 5),
    )},
    "a request that is nested": asked(b'{"messages": ' + NESTED + b"}"),
    "a request of other types": asked(b'{"messages": {"role": 5}, "model": ["x"], "tools": 5}'),
    "a path that is none": asked(chat.encode_json(chat.request()), "http://[/v1/chat/completions?key=\x1b[31m"),
    "a model of a path": asked(b'{"contents": 5}', "/v1beta/models/%00%1b[31m:generateContent"),
    "a reply that is nested": replied(b'{"choices": ' + NESTED + b"}"),
    "a reply of other types": replied(b'{"choices": [{"message": {"content": 5, "tool_calls": {"function": "x"}}}]}'),
    "a reply that is coded": replied(b"\x1f\x8b\x00broken", **{"content-encoding": "gzip"}),
    "a reply without a body": replied(None),
    "flows that are cut off": lambda folder: flow()(folder)[:-40],
    "a length that lies": b"999999999:",
    "a length of many digits": b"9" * 5000 + b":",
    "flows of another type": b"5:12345#",
    "a HAR file without entries": b'{"log": {}}',
    "a HAR file with entries of other types": har(request={"url": 5, "method": [], "headers": 5}, response=7),
    "JSON that is nested": NESTED,
    "objects that are nested": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a reply of an API that is nested": json.dumps(REPLY)[:-2].encode() + b', "x": ' + NESTED + b"}]}",
    "events that are nested": b"data: " + b"[" * DEEP + b"\n\n",
    "many digits": b'{"choices": [{"index": ' + b"9" * 10_000 + b"}]}",
    "a list of events of other types": b'[{"type": 5}, {"type": ["x"]}, {"choices": 5}]',
    "a line of JSON that is no reply": b'{"text": 5, "finish_reason": ["x"]}\n',
    "no UTF-8": b"\xff\xfe\x00<tool_call>\xf0\x28",
    "NUL and escapes": b"\x00\x1b]0;x\x07<tool_call>",
    "half a character": json.dumps({"text": "\ud800"}).encode(),
    "YAML with aliases without end": b"- name: a\n  text: &a [" + b"*a, " * 5 + b"x]\n",
    "YAML that makes objects": b"- name: !!python/object/apply:os.system ['true']\n  text: x\n",
    "YAML that is nested": b"- name: " + b"[" * 5000,
    "a case of other types": case(text=5, tools=[1], calls={"x": 1}),
    "a case with a schema that is none": case(tools={"read": 5}, dialects=["hermes"]),
    "a case with a schema that refers to itself": case(tools={"read": {"$ref": "#"}}, dialects=["hermes"]),
    "a case with an unknown dialect": case(dialects=["\x1b[31m"]),
    "a log of other types": b'{"outcome": "", "client": 5, "model": ["x"], "sizes": "x", "calls": [{"name": 5}]}\n',
    "a log of half an entry": b'{"outcome": "repaired", "model": "x", "calls": [{}]}\n',
    "nothing": b"",
}  # fmt: skip


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tools") / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


@pytest.mark.parametrize("name", FILES)
def test_command_reads_the_file_or_prints_one_line_with_the_reason(name: str, tools: Path, tmp_path: Path) -> None:
    content = FILES[name]
    file = tmp_path / ("file.yaml" if "YAML" in name or "case" in name else "file")
    file.write_bytes(content if isinstance(content, bytes) else content(tmp_path))
    offered = ("--tools", str(tools))
    for command in (
        ("parse", *offered), ("parse", "--lines"), ("replay",), ("replay", "--json"), ("new-dialect", *offered),
        ("explain",), ("stats",),
    ):  # fmt: skip
        done = CliRunner().invoke(main, [*command, str(file)])
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert "Traceback" not in done.output, command
        errors = [line for line in done.stderr.splitlines() if line.startswith("Error")]
        assert len(errors) == (done.exit_code == 2) or done.exit_code in (0, 1), (command, done.stderr)
        assert not set(done.stderr) & set("\x00\x1b\x07"), command
