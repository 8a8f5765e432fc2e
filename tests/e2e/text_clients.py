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
    messages = [{"role": "system", "content": system}, *(turns or [said_by_user("<task>\nLook.\n</task>")])]
    return chat.request(stream=stream, messages=messages, tools=None, **fields)


def said_by_user(*texts: Any) -> chat.Json:
    parts = [{"type": "text", "text": text} if isinstance(text, str) else text for text in texts]
    return {"role": "user", "content": parts}


def assistant(text: str) -> chat.Json:
    return {"role": "assistant", "content": text}


def profiles(directory: Path, **documents: chat.Json) -> list[str]:
    """Write user profiles, and return their directory as the option `vtc_profiles` takes it."""
    for kind, document in documents.items():
        (directory / f"{kind}.yaml").write_bytes(chat.encode_json({"kind": kind, "name": "mine", **document}))
    return [str(directory)]
