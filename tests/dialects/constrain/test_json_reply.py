"""A call as the JSON Schema of the whole reply."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.dialects.constrain.material import TOOLS, call, text_of
from tests.dialects.material import DIALECTS, calls, read
from vtc.dialects.constrain import Demand, Inexpressible, render_constraint
from vtc.events import Tool

FULL = {"path": "a.py", "content": "b", "mode": "new", "about": {"who": "me"}}
DEMAND = Demand(calls_only=True)


@pytest.mark.parametrize("name", ["bare-json", "llama3", "json-array"])
def test_a_call_that_is_json_is_such_a_reply(name: str) -> None:
    schema = render_constraint("json_schema", DIALECTS[name], [*TOOLS.values()], DEMAND)
    wrong = [{**FULL, "mode": "x"}, {"path": "a"}, {**FULL, "z": 1}]
    for arguments, fits in ((FULL, True), *((one, False) for one in wrong)):
        text = text_of(name, call("write_file", arguments))
        value = json.loads(text)
        for one in value if isinstance(value, list) else [value]:
            one.pop("id", None)
        assert jsonschema.Draft202012Validator(schema).is_valid(value) == fits
        assert not fits or calls(read([json.dumps(value)], [DIALECTS[name]], TOOLS)) == [("write_file", arguments)]


def test_references_are_followed_and_bounded() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer", "minimum": 3}}}
    tool = Tool("f", "", {"properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}})
    text = json.dumps(render_constraint("json_schema", DIALECTS["bare-json"], [tool], DEMAND))
    assert "$ref" not in text
    assert "minimum" not in text


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "pythonic", "name-json"])
def test_other_dialects_are_more_than_json(name: str) -> None:
    with pytest.raises(Inexpressible, match="not a JSON object that is the whole reply"):
        render_constraint("json_schema", DIALECTS[name], [*TOOLS.values()], DEMAND)


def test_a_call_must_be_demanded() -> None:
    with pytest.raises(Inexpressible, match="must be required"):
        render_constraint("json_schema", DIALECTS["bare-json"], [*TOOLS.values()], Demand(calls_only=False))
