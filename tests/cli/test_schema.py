"""Tests of `vtc schema`, by which editors check profiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from vtc.cli import main
from vtc.cli.schema import build_schema, read_descriptions, render_markdown
from vtc.profiles import ClientProfile, ServerProfile, loader

PROFILES = loader.builtin_directory()
FILES = sorted(PROFILES.rglob("*.yaml"))
KINDS = (*loader.KINDS, "profile")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["schema", *arguments])


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_json_schema(kind: str) -> None:
    result = run(kind)
    assert result.exit_code == 0
    schema = json.loads(result.output)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:virtual-tool-calling:profiles:{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_schema_files_equal_the_output(kind: str) -> None:
    """Renew them: `vtc schema --write profiles/schema`."""
    assert (PROFILES / "schema" / f"{kind}.json").read_text("utf-8") == run(kind).output


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_profile_names_its_schema_and_keeps_it(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = json.loads((file.parent / first.removeprefix(prefix)).read_text("utf-8"))
    for document in yaml.safe_load_all(file.read_text("utf-8")):
        jsonschema.Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize(
    ("profile", "valid"),
    [
        ({"kind": "model", "name": "x", "match": {}}, True),
        ({"kind": "client", "name": "x", "match": {}, "call_gap": 1}, True),
        ({"kind": "model", "name": "x", "match": {}, "call_gap": 1}, False),
        ({"kind": "modle", "name": "x", "match": {}}, False),
        ({"name": "x", "match": {}}, False),
    ],
)
def test_the_schema_for_any_goes_by_the_kind(profile: Any, valid: bool) -> None:
    schema = json.loads(run("profile").output)
    assert jsonschema.Draft202012Validator(schema).is_valid(profile) is valid


def test_all_are_written_to_a_directory(tmp_path: Path) -> None:
    result = run("--write", str(tmp_path / "schema"))
    assert result.output == f"{len(KINDS)} schemas written to {tmp_path / 'schema'}\n"
    assert sorted(path.stem for path in (tmp_path / "schema").iterdir()) == sorted(KINDS)


def iter_properties(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all properties of a schema with their paths."""
    if isinstance(value, dict):
        if "if" not in value and isinstance(value.get("properties"), dict):
            yield from ((f"{path}.{key}", one) for key, one in value["properties"].items())
        for key, one in value.items():
            if key != "if":
                yield from iter_properties(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from iter_properties(one, path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_property_has_a_description(kind: str) -> None:
    found = dict(iter_properties(build_schema(kind)))
    assert len(found) > 5
    assert [path for path, one in found.items() if not one.get("description", "").strip()] == []


def test_a_description_is_the_docstring_of_the_field_also_of_one_that_is_inherited() -> None:
    assert read_descriptions(ClientProfile)["dialect"] == "Its dialect for text tool calls."
    assert read_descriptions(ServerProfile)["upstream_stream"].startswith("`never`: a streaming request")


def test_the_tables_have_every_key_and_every_link_leads_somewhere() -> None:
    text = render_markdown()
    for kind, model in loader.KINDS.items():
        table = text.partition(f"## kind: {kind}\n")[2].partition("\n## kind")[0]
        for key in read_descriptions(model):
            assert f"| `{key}`" in table, (kind, key)
    titles = {title.lower() for title in re.findall(r"^###? (\w+)$", text, re.M)}
    assert set(re.findall(r"\]\(#(\w+)\)", text)) <= titles
    assert len(re.findall(r"^### ", text, re.M)) == len(titles)  # each once
