"""Requests and messages of text clients, for example Cline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.apis import chat

PROMPTS = Path(__file__).parents[1] / "cases" / "prompts"


CLINE = (PROMPTS / "cline.md").read_text("utf-8")


AGENT = {"user-agent": "Cline/3.82.0"}


LIST = "<list_files>\n<path>.</path>\n</list_files>"


def request(*turns: chat.Json, stream: bool = False, system: Any = CLINE, **fields: Any) -> chat.Json:
    """Return a request of a text client: a system prompt, turns, and no tools."""
    messages = [{"role": "system", "content": system}, *(turns or [make_user_message("<task>\nLook.\n</task>")])]
    return chat.request(stream=stream, messages=messages, tools=None, **fields)


def make_user_message(*texts: Any) -> chat.Json:
    parts = [{"type": "text", "text": text} if isinstance(text, str) else text for text in texts]
    return {"role": "user", "content": parts}


def assistant(text: str) -> chat.Json:
    return {"role": "assistant", "content": text}


def write_profiles(directory: Path, **documents: chat.Json) -> list[str]:
    """Write profiles, one file for each keyword; return the value of the option `vtc_profiles`."""
    for kind, document in documents.items():
        (directory / f"{kind}.yaml").write_bytes(chat.encode_json({"kind": kind, "name": "mine", **document}))
    return [str(directory)]
