"""The demonstration's model: it knows no tools, and writes calls in the format of its prompt."""

from __future__ import annotations

import httpx
import pytest

from vtc.demo import run_server, write_reply
from vtc.dialects import Reader, ReaderOptions, compile_grammar
from vtc.dialects.writing import append_tools
from vtc.events import Call, Tool
from vtc.profiles import builtin_directory, load_profiles

DIALECTS = load_profiles([builtin_directory()]).dialects
TOOL = Tool("read_file", "Read a text file.", {"type": "object", "properties": {"path": {"type": "string"}}})
ASK = {"role": "user", "content": "What does note.txt say?"}


@pytest.mark.parametrize("name", ["tag", "invoke", "hermes", "tools-tag", "bare-json", "qwen3-coder"])
def test_it_writes_a_call_as_its_prompt_shows_it(name: str) -> None:
    (system,) = append_tools([], DIALECTS[name], [TOOL], "auto")
    text = write_reply([{"role": "system", "content": system.text}, ASK])
    reader = Reader(compile_grammar((DIALECTS[name],)), {TOOL.name: TOOL}, ReaderOptions(lenient=False))
    calls = [event.call for event in (*reader.feed(text), *reader.finish()) if isinstance(event, Call)]
    assert [(call.name, call.arguments) for call in calls] == [("read_file", '{"path":"note.txt"}')]


def test_server_reports_missing_tools_and_answers_after_the_result() -> None:
    assert "no tools" in write_reply([ASK])
    result = {"role": "user", "content": "Tool Result from read_file:\nThe secret word is plum."}
    assert "secret word is plum" in write_reply([ASK, result])


def test_it_refuses_tools_and_serves_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    with run_server() as model, httpx.Client(base_url=model.url, trust_env=False, verify=False) as client:
        body: dict[str, object] = {"model": "m", "messages": [ASK]}
        assert client.post("/v1/chat/completions", json={**body, "tools": []}).status_code == 400
        whole = client.post("/v1/chat/completions", json=body).json()
        streamed = client.post("/v1/chat/completions", json={**body, "stream": True}).text
        for path, content, status in (
            ("/v1/chat/completions", b"{}", 400),
            ("/v1/chat/completions", b'{"messages": []}', 400),
            ("/v1/chat/completions", b'{"messages": [1]}', 400),
            ("/v1/chat/completions", b"", 400),
            ("/v1/messages", b"{}", 404),
        ):
            assert client.post(path, content=content).status_code == status
        assert client.get("/v1/models").json()["data"][0]["id"] == "demo-model"
        assert client.get("/api/tags").status_code == 404
    assert capsys.readouterr().err == ""
    assert whole["choices"][0]["message"]["content"] == model.written[0]
    assert streamed.endswith("data: [DONE]\n\n")
