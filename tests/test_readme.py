"""The README is short, and its statements are true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
MOST = 6 * 1024
"""Maximum size in bytes: one page, to be read before an installation."""


def test_it_is_short() -> None:
    assert len(README.encode()) <= MOST


def test_its_links_are_absolute_once_the_project_has_an_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    relative = re.findall(r"\]\((?!https?:|#)[^)]+\)", README)
    assert bool(relative) == ("urls" not in project)


def test_every_command_listens_on_this_machine_only() -> None:
    for line in re.findall(r"^(?:vtc run|mitm\w+ ).*$", README, re.M):
        assert "0.0.0.0" not in line
        assert "vtc run" in line or "--listen-host 127.0.0.1" in line


def test_readme_shows_the_models_text_and_the_clients_reply() -> None:
    """VTC reads the left column of the sample as the calls in the right column."""
    from vtc.dialects import Reader, compile_grammar
    from vtc.events import Call, Tool
    from vtc.profiles import builtin_directory, load_profiles

    sample = README.partition("------------------------\n")[2].partition("```")[0]
    text = "\n".join(line[:38].rstrip() for line in sample.splitlines())
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    dialect = load_profiles([builtin_directory()]).dialects["qwen3-coder"]
    reader = Reader(compile_grammar((dialect,)), {"read_file": Tool("read_file", "", schema)})
    (call,) = [event.call for event in [*reader.feed(text), *reader.finish()] if isinstance(event, Call)]
    assert f'"name": "{call.name}"' in sample
    assert call.arguments.replace('"', '\\"') in sample
