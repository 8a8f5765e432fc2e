"""A conversation in the format of each API, turn by turn."""

from __future__ import annotations

import json
from typing import Any

from tests.apis import conversations, gemini, messages, responses
from tests.apis.named_events import Json


def turns(client: str) -> list[Json]:
    """Return the fields of ten requests of one conversation, each of which continues the one before."""
    found: list[Json] = []
    said_: list[Any] = []
    key = conversations.get_history_key(client)
    for turn in range(10):
        call_id = f"c{turn}"
        match client:
            case "anthropic-messages":
                said_ = [*said_, messages.user(f"ask {turn}")]
                after = [
                    messages.assistant(messages.text("So."), messages.call("read", call_id, filePath=f"/{turn}")),
                    messages.user([messages.result("found", call_id), messages.text("Go on.")]),
                    *([{"role": "system", "content": "note"}] if turn % 3 == 0 else []),
                    messages.assistant(messages.text("Done.")),
                ]
            case "openai-responses":
                said_ = [*said_, responses.make_input_message("user", f"ask {turn}")]
                called = responses.call("read", f"fc{turn}", call_id, filePath=f"/{turn}")
                after = [called, responses.output("found", call_id), responses.message("Done.", f"msg_{turn}")]
            case "gemini-generate":
                said_ = [*said_, gemini.user(f"ask {turn}")]
                after = [
                    gemini.model(gemini.call("read", filePath=f"/{turn}")),
                    gemini.user(gemini.result("found")),
                    gemini.model(gemini.text("Done.")),
                ]
            case _:
                function = {"name": "read", "arguments": {"filePath": f"/{turn}"}}
                if client == "openai-chat":
                    function["arguments"] = json.dumps(function["arguments"])
                said_ = [*said_, {"role": "user", "content": f"ask {turn}"}]
                after = [
                    {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "function": function}]},
                    {"role": "tool", "tool_call_id": call_id, "content": "found"},
                    {"role": "assistant", "content": "Done."},
                ]
        found.append({key: said_})
        said_ = [*said_, *after]
    return found
