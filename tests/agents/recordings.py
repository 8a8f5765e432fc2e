"""Requests of real agents without their content: all properties that matter to an API, and no text that anyone wrote.

Fields, names of tools, schemas and all orders are as they were sent. Prompts, descriptions and values are replaced by a
mark if they are not empty, so each run of an agent writes the same file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

type Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "cases" / "agents"
AS_SENT = {"type", "role", "name", "model", "id", "call_id", "tool_call_id", "tool_use_id", "status", "mode", "effort"}
"""Fields whose value an API interprets, or which connect a result with its call."""
SCHEMAS = {"parameters", "input_schema", "parametersJsonSchema", "schema"}
VALUES = {
    *("auto", "none", "any", "required", "text", "ephemeral", "global", "1h", "5m", "reasoning.encrypted_content"),
    *("enabled", "adaptive", "disabled", "minimal", "low", "medium", "high", "xhigh", "max", "detailed", "concise"),
}
"""Schemas of parameters."""
ANEW = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])|(?<=_)\d{13}(?=_)")
"""Parts of ids that differ in each run: UUIDs and times."""


def load_recordings() -> dict[str, Json]:
    """Return the recorded requests by the name of the agent: `api` and `body`."""
    return {file.stem: yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) for file in sorted(FOLDER.glob("*.yaml"))}


def serialize_request(title: str, api: str, body: Json) -> str:
    """Serialize the recorded part of a request."""
    head = f"# What {title} sent after two calls, without its words (tests/agents/test_recording.py).\n"
    return head + yaml.dump({"api": api, "body": mask_request(body)}, sort_keys=False, width=140, allow_unicode=True)


def mask_request(body: Json) -> Json:
    """Mask the content of a request, and number ids that differ in each run."""
    ids: dict[str, str] = {}
    numbered = ANEW.sub(lambda found: ids.setdefault(found[0], f"{len(ids):0{len(found[0])}}"), json.dumps(body))
    return _mask_value(json.loads(numbered))  # type: ignore[no-any-return]


def _mask_value(value: Any, key: str = "", *, is_schema: bool = False) -> Any:
    """Mask the texts in a part of a request, which is in the field `key`; in a schema only the descriptions."""
    if isinstance(value, dict):
        within = is_schema or key in SCHEMAS
        return {name: _mask_value(part, name, is_schema=within) for name, part in value.items()}
    if isinstance(value, list):
        return [_mask_value(part, key, is_schema=is_schema) for part in value]
    if not isinstance(value, str):
        return value
    if key == "arguments":
        return json.dumps({name: _mask_text(str(part)) for name, part in json.loads(value).items()}, ensure_ascii=False)
    is_kept = key != "description" and (is_schema or key in AS_SENT or value in VALUES)
    return value if is_kept else _mask_text(value)


def _mask_text(text: str) -> str:
    """Replace a text by `x`, and keep the white space around it."""
    return re.sub(r"\S(?:.*\S)?", "x", text, flags=re.S)
