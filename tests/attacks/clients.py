"""The calls that clients execute in a reply, by independent parsers: the oracles of all attacks.

This module does not use VTC. `cline` follows Cline's parseAssistantMessageV2, from which Roo Code and Kilo Code derive;
the others follow SDKs: Python's joins names by index, the AI SDK keeps the first, and simple clients ignore the index
of the choice. All are as tolerant as JavaScript: no nesting is too deep and no text too long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

CLINE_TOOLS = (
    "execute_command", "read_file", "write_to_file", "replace_in_file", "search_files", "list_files",
    "list_code_definition_names", "browser_action", "use_mcp_tool", "access_mcp_resource", "ask_followup_question",
    "plan_mode_respond", "load_mcp_documentation", "attempt_completion", "new_task", "condense", "report_bug",
    "new_rule", "web_fetch",
)  # fmt: skip
CLINE_PARAMETERS = (
    "command", "requires_approval", "path", "content", "diff", "regex", "file_pattern", "recursive", "action", "url",
    "coordinate", "text", "server_name", "tool_name", "arguments", "uri", "question", "options", "response", "result",
    "context", "title", "what_happened", "steps_to_reproduce", "timeout",
)  # fmt: skip


JAVASCRIPT_SPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def cline(text: str, *, roo: bool = False) -> list[tuple[str, dict[str, str]]]:
    """Return the calls that Cline executes; one that is not closed is executed at the end of the stream, too.

    Version 1, which `roo` follows, searches for the last closer of a file's content at each closer that ends no
    parameter, and version 2 when the call ends.
    """
    calls: list[tuple[str, dict[str, str]]] = []
    tool, parameter, start, body = "", "", 0, 0
    for at in range(1, len(text) + 1):
        if text[at - 1] != ">":
            continue  # no tag ends here
        if tool and parameter:
            closer = f"</{parameter}>"
            if not text.endswith(closer, 0, at):
                continue
            calls[-1][1][parameter] = text[start : at - len(closer)].strip(JAVASCRIPT_SPACE)
            parameter = ""
            if roo:
                continue
        elif tool:
            found = next((one for one in CLINE_PARAMETERS if text.endswith(f"<{one}>", 0, at)), "")
            if found:
                parameter, start = found, at
                continue
        if tool:
            ends = text.endswith(f"</{tool}>", 0, at)
            whole = text[body : at - len(f"</{tool}>")] if ends else text[body:at]
            looks = not ends and whole.endswith("</content>") if roo else ends
            if tool in ("write_to_file", "new_rule") and looks:
                first, last = whole.find("<content>"), whole.rfind("</content>")
                # Version 1 treats a missing opener as one before the call.
                if first + len("<content>") < last if roo else 0 <= first < last:
                    calls[-1][1]["content"] = whole[first + len("<content>") : last].strip(JAVASCRIPT_SPACE)
            if ends:
                tool = ""
            continue
        if found := next((one for one in CLINE_TOOLS if text.endswith(f"<{one}>", 0, at)), ""):
            tool, body = found, at
            calls.append((tool, {}))
    if tool and parameter:
        calls[-1][1][parameter] = text[start:].strip(JAVASCRIPT_SPACE)
    return calls


def parse_json(data: str) -> Any:
    """Parse JSON as JavaScript does; if Python cannot parse it, return all names in it."""
    try:
        return json.loads(data, parse_int=float)
    except RecursionError:
        return {"names": re.findall(r'"name"\s*:\s*"([^"]*)"', data)}
    except ValueError:
        return None


def frames(body: bytes) -> Iterator[Any]:
    """Yield the data of every event, with any kind of line end, and the last one even without its blank line."""
    for event in re.split(r"(?:\r\n|\r|\n){2}", body.decode("utf-8", "replace").lstrip("\ufeff")):
        lines = [line for line in re.split(r"\r\n|\r|\n", event) if line.startswith("data:")]
        if lines:
            yield parse_json("\n".join(line[5:].removeprefix(" ") for line in lines))


def find_chat_calls(body: bytes) -> set[str]:
    """Return the names of all calls that any client would find in a chat completion, streamed or whole."""
    text = body.decode("utf-8", "replace")
    values = [parse_json(text)] if text.lstrip("\ufeff \r\n\t").startswith("{") else [*frames(body)]
    names: set[str] = set()
    joined: dict[tuple[Any, ...], str] = {}
    for value in values:
        if not isinstance(value, dict):
            continue
        names |= {*value.get("names", ())}
        for number, choice in enumerate(_each(value.get("choices"))):
            for part in (choice.get("delta"), choice.get("message")):
                if not isinstance(part, dict):
                    continue
                entries = [*_each(part.get("tool_calls")), {"function": part.get("function_call"), "index": "legacy"}]
                for place, entry in enumerate(entries):
                    key = str(entry.get("index", place))
                    for called in (entry, entry.get("function"), entry.get("custom")):
                        name = called.get("name") if isinstance(called, dict) else None
                        if not isinstance(name, str):
                            continue
                        names.add(name)
                        for by in ((key, str(choice.get("index", number))), (key,)):
                            joined[by] = joined.get(by, "") + name
    return names | {*joined.values()}


def _each(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or of an object that a client may index like one."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in values if isinstance(one, dict)]


def join_texts(body: bytes) -> str:
    """Return the text of all choices of a reply."""
    text = body.decode("utf-8", "replace")
    values = [parse_json(text)] if text.lstrip().startswith("{") else [*frames(body)]
    texts = []
    for value in values:
        for choice in _each(value.get("choices") if isinstance(value, dict) else None):
            for part in (choice.get("delta"), choice.get("message")):
                content = part.get("content") if isinstance(part, dict) else None
                texts += [content] if isinstance(content, str) else [str(one.get("text")) for one in _each(content)]
    return "".join(texts)


def find_calls(body: bytes) -> set[str]:
    """Return the names of all calls in a reply of Anthropic Messages, OpenAI Responses, Ollama or Gemini."""
    text = body.decode("utf-8", "replace")
    lines = re.split(r"\r\n|\r|\n", text)
    if any(line.startswith("data:") for line in lines):
        lines = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    found: set[str] = set()
    rest = [parse_json(text.lstrip("\ufeff")), *map(parse_json, lines)]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            kind, name = value.get("type"), value.get("name")
            if kind in ("tool_use", "function_call", "custom_tool_call") and isinstance(name, str):
                found.add(name)
            functions = [entry.get("function") for entry in _each(value.get("tool_calls"))]
            for function in (*functions, value.get("functionCall"), value.get("function_call")):
                if isinstance(function, dict) and isinstance(function.get("name"), str):
                    found.add(function["name"])
            found |= {*value["names"]} if isinstance(value.get("names"), list) and {*value} == {"names"} else set()
            rest += [one for key, one in value.items() if key != "tools"]
        elif isinstance(value, list):
            rest += value
    return found
