"""`vtc schema`: what editors check profiles with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from vtc.cli import main
from vtc.profiles import loader

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
def test_the_files_beside_the_profiles_are_what_it_prints(kind: str) -> None:
    """Renew them: `vtc schema --write profiles/schema`."""
    assert (PROFILES / "schema" / f"{kind}.json").read_text("utf-8") == run(kind).output


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_profile_says_which_schema_is_its_own_and_keeps_it(file: Path) -> None:
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
