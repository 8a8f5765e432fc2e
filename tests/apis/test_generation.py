"""The generation settings of a request in each API's form: JSON, thinking, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dialects.material import CASES as FOLDER
from tests.dialects.material import plain
from vtc.apis import APIS
from vtc.json_text import encode_json

CHAT, MESSAGES, _, OLLAMA, _ = APIS
CASES = plain((FOLDER / "apis" / "generation.yaml").read_text("utf-8"))


@pytest.mark.every
@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case["fields"])[:60])
def test_generation_settings_are_read(case: dict[str, Any]) -> None:
    found = CHAT.request(encode_json({"model": "m", **case["fields"]})).generation
    settings = {
        "json": found.answer is not None,
        "thinks": found.thinks,
        "effort": found.effort,
        "constrained": found.constrained,
    }
    assert {"fields": case["fields"], **{name: settings[name] for name in settings if name in case}} == case


def test_limits_are_read_anywhere_and_written_to_the_first_place() -> None:
    found = OLLAMA.layout.read_limits({"options": {"num_predict": 5, "stop": "x", "top_p": 0}})
    assert found == {"max_tokens": 5, "stop": ["x"], "top_p": 0}
    fields = {"options": {"num_predict": 5, "stop": ["x"], "top_p": 0}}
    assert OLLAMA.layout.write_limits({**found, "no_such": 1}) == fields
    found = CHAT.layout.read_limits({"max_completion_tokens": 5})
    assert CHAT.layout.write_limits(found) == {"max_tokens": 5}


def test_no_limit_is_none() -> None:
    """Ollama and llama.cpp use a negative number for no limit, which other servers reject."""
    assert OLLAMA.layout.read_limits({"options": {"num_predict": -1, "top_p": 1}}) == {"top_p": 1}


def test_untranslated_fields_are_listed() -> None:
    options = {"num_predict": 5, "low_vram": True, "numa": None}
    fields = {"options": options, "x": 1, "model": "m", "tools": []}
    assert OLLAMA.layout.list_untranslated(fields) == ["options.low_vram", "x"]
    assert MESSAGES.layout.list_untranslated({"thinking": {"type": "enabled", "keep": 9}}) == ["thinking.keep"]
    assert MESSAGES.layout.list_untranslated({"thinking": None}) == []
