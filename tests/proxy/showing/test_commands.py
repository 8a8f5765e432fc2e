"""The commands, called as mitmproxy's command bar calls them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions, http
from mitmproxy.addons.view import View
from mitmproxy.test import taddons, tflow, tutils

from tests.apis import chat, messages, ollama, responses
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import PROFILES
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.showing.page import Page
from vtc.reporting import parse_cases

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})


class Session:
    """The addon together with mitmproxy's list of flows."""

    def __init__(self, addon: VirtualToolCalling, view: View, context: taddons.context) -> None:
        self.addon = addon
        self.view = view
        self.context = context

    def exchange(
        self,
        text: str,
        *,
        path: str = "",
        key: str = "none",
        api: str = "openai-chat",
        reply: chat.Json | None = None,
        **fields: Any,
    ) -> http.HTTPFlow:
        """Pass a whole exchange through the addon, and list its flow."""
        shape = SHAPES[api]
        headers = http.Headers(content_type="application/json", authorization=f"Bearer {key}", user_agent="tests")
        body, path = make_request_body(api, stream=False, **fields), path or shape.build_path(model=fields.get("model"))
        flow = tflow.tflow(req=tutils.treq(method=b"POST", path=path.encode(), headers=headers, content=body))
        asyncio.run(self.addon.request(flow))
        body = chat.encode_json(reply or shape.whole(text))
        flow.response = http.Response.make(200, body, {"content-type": "application/json"})
        asyncio.run(self.addon.responseheaders(flow))
        asyncio.run(self.addon.response(flow))
        self.view.add([flow])
        return flow

    def call(self, line: str) -> str:
        found = self.context.master.commands.execute(line)
        assert isinstance(found, str)
        return found


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    addon, view = VirtualToolCalling(), View()
    with taddons.context(view, addon) as context:
        context.configure(addon, vtc_tools="prompt", vtc_dialect="hermes")
        yield Session(addon, view, context)


def test_mitmweb_can_run_every_command(session: Session) -> None:
    ours = [name for name in session.context.master.commands.commands if name.startswith("vtc")]
    assert set(ours) == {"vtc.stats", "vtc.reload", "vtc.explain", "vtc.diff", "vtc.save"}
    assert all(re.fullmatch("[a-z.]+", name) for name in ours)
    assert all(session.context.master.commands.commands[name].help for name in ours)


@pytest.mark.parametrize("api", SHAPES)
def test_explain(api: str, session: Session) -> None:
    session.exchange(CALL, api=api)
    lines = session.call("vtc.explain @all").splitlines()
    assert lines[0] == f"POST address{SHAPES[api].path}"
    for line in ("  call: read, hermes -> tool_calls", "Why", "Current plan"):
        assert line in lines
    assert any("written as hermes" in line for line in lines)


def test_explain_a_flow_that_was_never_seen(session: Session) -> None:
    flow = session.exchange(CALL)
    flow.request.content = chat.encode_json(chat.request(model="Qwen/Qwen3-8B"))
    flow.metadata.clear()
    output = session.call("vtc.explain @all")
    assert "What VTC did" not in output
    assert "profile qwen3" in output
    flow.request.content = b"x"
    assert "VTC would leave this flow alone: the body is not a valid chat completion request" in session.call(
        "vtc.explain @all"
    )


@pytest.mark.parametrize("api", SHAPES)
def test_diff(api: str, session: Session) -> None:
    session.exchange(f"I look.\n{CALL}", api=api)
    lines = session.call("vtc.diff @all").splitlines()
    assert "--- as the client sent it" in lines
    assert "-[tools]" in lines
    assert "+[system]" in lines
    assert "-  <tool_call>" in lines
    assert any(line.startswith("+  -> read") for line in lines)


def test_diff_of_an_unchanged_or_unstored_body(session: Session) -> None:
    session.exchange("Hello", tools=None)
    assert session.call("vtc.diff @all").splitlines() == [
        "POST address/v1/chat/completions",
        "the request was not changed",
        "the reply was not changed",
    ]
    session.view.clear()
    session.context.configure(session.addon, vtc_keep_bodies="off")
    session.exchange(CALL)
    assert "the reply was changed and its original not stored" in session.call("vtc.diff @all")


@pytest.mark.parametrize("command", ["vtc.explain", "vtc.diff"])
def test_in_mitmweb_a_long_answer_is_on_the_page(command: str, session: Session) -> None:
    """mitmweb's command bar shows a result in one line."""
    session.exchange(CALL)
    session.exchange("Hello")
    (page,) = (one for one in session.addon.addons if isinstance(one, Page))
    in_full = session.call(f"{command} @all")
    page.address = "http://127.0.0.1:8081/vtc"
    assert session.call(f"{command} @all") == "2 exchanges: read it at http://127.0.0.1:8081/vtc/said"
    assert page.command_output == in_full
    output = session.call("vtc.stats")
    assert output.startswith("2 exchanges, 1 call (0 repaired), 0 left as text, 0 unread, 0 errors in VTC, ")
    assert output.endswith("; by model, client and dialect: http://127.0.0.1:8081/vtc")


@pytest.mark.parametrize("api", SHAPES)
def test_save_makes_a_capture_a_test(api: str, session: Session, tmp_path: Path) -> None:
    """The file is a list of cases that parse as stated, and later cases are appended."""
    session.exchange(f"I look.\n{CALL}", api=api)
    path = tmp_path / "cases.yaml"
    assert session.call(f"vtc.save @all '{path}'") == f"vtc: 1 case added to {path}"
    session.exchange(CALL.removesuffix("</tool_call>"), api=api)
    assert session.call(f"vtc.save @all '{path}'") == f"vtc: 2 cases added to {path}"
    cases = parse_cases(path.read_text("utf-8"))
    assert [one.repairs for one in cases] == [(), (), ("missing-closer",)]
    for one in cases:
        assert one.calls == ({"read": {"filePath": "/a"}},)
        assert (
            one.list_differences(one.read_events([one.text], one.resolve_dialects(PROFILES), one.resolve_tools())) == []
        )


@pytest.mark.parametrize(
    ("model", "text", "dialects", "facts"),
    [
        ("my-own", CALL, ("*",), ()),
        ("qwen2.5:7b", CALL, ("hermes", "tools-tag", "bare-json", "*"), ()),
        ("my-own", f"<think>Hm.</think>{CALL}", ("*",), ("tags", "think")),
    ],
)
def test_save_names_the_reading_settings_and_nothing_else(
    model: str, text: str, dialects: tuple[str, ...], facts: tuple[str, ...], session: Session, tmp_path: Path
) -> None:
    flow = session.exchange(text, model=model)
    session.call(f"vtc.save @all '{tmp_path / 'cases.yaml'}'")
    written = (tmp_path / "cases.yaml").read_text("utf-8")
    (case,) = parse_cases(written)
    assert case.name == f"{model.partition(':')[0]} {flow.id[:8]}"
    assert case.dialects == dialects
    assert ("tags:" in written, "think:" in written) == ("tags" in facts, "think" in facts)
    assert len(written.splitlines()) < 30


THOUGHT = {
    "openai-chat": chat.completion(CALL, message={"reasoning_content": "Hm."}),
    "anthropic-messages": messages.message(messages.thinking("Hm.", "sig"), messages.text(CALL)),
    "openai-responses": responses.response(responses.reasoning("Hm."), responses.message(CALL)),
    "ollama-chat": ollama.message(CALL, thinking="Hm."),
}


@pytest.mark.parametrize("model", ["mine", "qwen3-8b"])
@pytest.mark.parametrize("api", THOUGHT)
def test_save_takes_a_reply_whose_reasoning_the_server_parted_off(
    api: str, model: str, session: Session, tmp_path: Path
) -> None:
    session.exchange("", api=api, reply=THOUGHT[api], model=model)
    path = tmp_path / "cases.yaml"
    assert session.call(f"vtc.save @all '{path}'") == f"vtc: 1 case added to {path}"
    (one,) = parse_cases(path.read_text("utf-8"))
    assert (one.calls, one.reasoning, one.tags) == (({"read": {"filePath": "/a"}},), "", ())


def test_save_skips_other_flows(session: Session, tmp_path: Path) -> None:
    session.exchange(CALL)
    broken = session.exchange("x")
    broken.response = http.Response.make(502, b"<html>")
    path = tmp_path / "cases.yaml"
    output = session.call(f"vtc.save @all '{path}'")
    assert output.startswith(f"vtc: 1 case added to {path}, 1 skipped ({broken.id[:8]}: the body is not a reply")
    assert len(parse_cases(path.read_text("utf-8"))) == 1
    session.view.clear()
    session.view.add([broken])
    with pytest.raises(exceptions.CommandError, match="nothing to save, 1 skipped"):
        session.call(f"vtc.save @all '{path}'")


def test_secrets_are_neither_saved_nor_printed(session: Session, tmp_path: Path) -> None:
    """Neither the request's key, even if the model repeats it, nor text that looks like a key is shown."""
    text = chat.DIALECTS["hermes"]("read", {"filePath": "open-sesame-77 sk-abcdefgh123"})
    text += chat.DIALECTS["hermes"]("sh.rm", {"filePath": "open-sesame-77"})
    flow = session.exchange(
        text + CALL.replace("read", "sk-abcdefgh123"), key="open-sesame-77", path="/v1/chat/completions?key=x1"
    )
    session.call(f"vtc.save @all '{tmp_path / 'cases.yaml'}'")
    saved = (tmp_path / "cases.yaml").read_text("utf-8")
    assert "[secret]" in saved
    output = session.call("vtc.explain @all") + flow.comment + json.dumps(flow.metadata["vtc"])
    for secret in ("open-sesame-77", "sk-abcdefgh123"):
        assert secret not in saved
        assert secret not in output
    assert "no tool 'sh.rm' is offered" in output


def test_a_file_that_cannot_be_written(session: Session) -> None:
    session.exchange(CALL)
    with pytest.raises(exceptions.CommandError, match=r"vtc\.save: .*No such file"):
        session.call("vtc.save @all /nowhere/at/all.yaml")


def test_ignored_flow_is_explained(session: Session, tmp_path: Path) -> None:
    session.exchange("Hello", path="/v1/completions")
    reason = "text completions have no tools, and are not read"
    assert session.call("vtc.explain @all").endswith(f"VTC would leave this flow alone: {reason}")
    assert session.call("vtc.diff @all").endswith(f"left alone: {reason}")
    with pytest.raises(exceptions.CommandError, match=f"nothing to save, 1 skipped .*{reason}"):
        session.call(f"vtc.save @all '{tmp_path / 'x.yaml'}'")


@pytest.mark.parametrize("command", ["vtc.explain", "vtc.diff", "vtc.save"])
def test_flows_that_are_none_of_ours(command: str, session: Session, tmp_path: Path) -> None:
    session.exchange("x", path="/v1/embeddings")
    with pytest.raises(exceptions.CommandError, match="none of these flows"):
        session.call(f"{command} @all" + f" '{tmp_path / 'x.yaml'}'" * (command == "vtc.save"))


def test_reload(session: Session, tmp_path: Path) -> None:
    assert re.fullmatch(
        r"vtc: profiles read: \d+ clients, \d+ models, \d+ servers, \d+ policies, \d+ dialects, \d+ agents",
        session.call("vtc.reload"),
    )
    session.context.configure(session.addon, vtc_profiles=[str(tmp_path)])
    (tmp_path / "bad.yaml").write_text("kind: modle\n")
    assert "did you mean 'model'?" in session.call("vtc.reload")
    page = next(one for one in session.addon.addons if isinstance(one, Page))
    page.address = "http://127.0.0.1:8081/vtc"
    assert re.fullmatch(r"vtc: [^\n]+: read it at http://127.0.0.1:8081/vtc/said", session.call("vtc.reload"))
    assert "did you mean 'model'?" in page.command_output
