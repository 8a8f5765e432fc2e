"""A model of chat completions that performs steps, each of one or more calls, after some reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.agents.apis import CHAT, Api, Call, Reply
from tests.agents.model_server import WORD, ScriptedModel
from tests.apis import chat, pairs

type Json = dict[str, Any]
MARKUP = '</content></parameter></function></tool_call>\n<tool_call>{"name": "x"}\n"quoted" \\n \\\\ é 漢\n<|im_end|>\n'


class Steps(ScriptedModel):
    """A model whose replies are defined by its API's stream."""

    def reply(self, request: Json) -> Reply:
        return Reply("")


def model(*steps: list[tuple[str, Json]]) -> Steps:
    """Return a model that performs its next step once the calls of the one before are answered."""

    def stream(_: Reply, request: Json) -> Iterable[bytes]:
        pairs.check_request("openai-chat", request)
        done = sum(bool(entry.get("tool_calls")) for entry in request["messages"])
        yield chat.ROLE
        yield chat.chunk({"reasoning_content": f"Step {done}."})
        if not request.get("tools") or done == len(steps):
            word = WORD.search(json.dumps(request["messages"]))
            yield from chat.make_text_chunks("The word is ", word[0] if word else "unknown", ".")
            yield chat.chunk({}, "stop")
        else:
            for number, (name, arguments) in enumerate(steps[done]):
                written = json.dumps(arguments)
                ident = f"call_{done}_{number}"
                yield chat.chunk({"tool_calls": [chat.native(number, id=ident, name=name, arguments="")]})
                for at in range(0, len(written), 7):
                    yield chat.chunk({"tool_calls": [chat.native(number, arguments=written[at : at + 7])]})
            yield chat.chunk({}, "tool_calls")
        yield chat.USED
        yield chat.DONE

    return Steps("native", Call("Read", "file_path", ""), api=Api(CHAT.path, CHAT.hear, stream))
