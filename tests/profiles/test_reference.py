"""Every key of a profile says what it is for, in the JSON Schema and in the tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from vtc.profiles import ClientProfile, ServerProfile, loader, reference

KINDS = (*loader.KINDS, "profile")


def properties(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All properties anywhere in a schema, by their paths."""
    if isinstance(value, dict):
        if "if" not in value and isinstance(value.get("properties"), dict):
            yield from ((f"{path}.{key}", one) for key, one in value["properties"].items())
        for key, one in value.items():
            if key != "if":
                yield from properties(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from properties(one, path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_property_has_a_description(kind: str) -> None:
    found = dict(properties(reference.schema(kind)))
    assert len(found) > 5
    assert [path for path, one in found.items() if not one.get("description", "").strip()] == []


def test_a_description_is_the_docstring_of_the_field_also_of_one_that_is_inherited() -> None:
    assert reference.descriptions(ClientProfile)["dialect"] == "How it writes and reads calls in text."
    assert reference.descriptions(ServerProfile)["upstream_stream"].startswith("`never`: a streaming request")


def test_the_tables_have_every_key_and_every_link_leads_somewhere() -> None:
    text = reference.markdown()
    for kind, model in loader.KINDS.items():
        table = text.partition(f"## kind: {kind}\n")[2].partition("\n## kind")[0]
        for key in reference.descriptions(model):
            assert f"| `{key}`" in table, (kind, key)
    titles = {title.lower() for title in re.findall(r"^###? (\w+)$", text, re.M)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= titles
    assert len(re.findall(r"^### ", text, re.M)) == len(titles)  # each once
