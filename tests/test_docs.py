"""The guides keep what they say: files they show are valid, commands they show print what stands below them.

A block that begins with ```LANGUAGE FILE is a file; one of ```console is run, page by page, in a folder with those
files and two captures (`flows`, `vtc.jsonl`). In printed text a line of `…` stands for any lines, and `…` in a line for
anything. Renew the transcripts: `VTC_RENEW_DOCS=1 pytest tests/test_docs.py`, then look at the difference.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.proxy.test_replaying import CALL, saved
from vtc.cli import main
from vtc.proxy import options, script

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.M | re.S)
LOGGED = {
    "outcome": "repaired",
    "client": "cline",
    "model": "qwen2.5",
    "calls": [{"name": "read_file", "dialect": "hermes", "repairs": ["missing-closer"]}],
    "sizes": {"request_came": 9120, "request_went": 9120, "reply_came": 4100, "reply_went": 2210},
    "seconds": 0.004,
}
"""A line of a log."""


def printed(line: str) -> str:
    """What a command prints, and its exit code if it is not 0."""
    program, *arguments = shlex.split(line)
    assert program == "vtc", f"only vtc is run here: {line}"
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"}, prog_name="vtc")
    output = result.output.replace(str(script.path()), "addons/addon.py")
    output = re.sub(r"\S*/bin/mitm", "mitm", output)
    return output + (f"(exit code {result.exit_code})\n" if result.exit_code else "")


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a transcript, and what stands below each."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def matches(shown: str, output: str) -> bool:
    lines = shown.splitlines(keepends=True)
    parts = [r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*") for line in lines]
    return re.fullmatch("".join(parts), output) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_transcripts_are_what_is_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text("utf-8")
    saved(tmp_path, "Hello", CALL)
    (tmp_path / "vtc.jsonl").write_text((json.dumps(LOGGED) + "\n") * 3)
    monkeypatch.chdir(tmp_path)
    for block in BLOCK.finditer(text):
        if block["file"]:
            path = tmp_path / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], "utf-8")
    renewed = text
    for block in BLOCK.finditer(text):
        for command, shown in steps(block["text"]) if block["kind"] == "console" else ():
            output = printed(command)
            if not matches(shown, output):
                assert os.environ.get("VTC_RENEW_DOCS"), f"$ {command}\n{output}"
                renewed = renewed.replace(f"$ {command}\n{shown}", f"$ {command}\n{output}")
    if renewed != text:
        page.write_text(renewed, "utf-8")


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_what_a_page_points_to_exists(page: Path) -> None:
    """Links, pictures, options and commands of vtc."""
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), target
    source = Path(options.__file__).read_text("utf-8")
    for name in set(re.findall(r"\bvtc_[a-z_]+\b", text)):
        assert f'"{name}"' in source, name
    for name in set(re.findall(r"^(?:\$ )?vtc ([a-z]+)", text, re.M)):
        assert name in main.commands, name


def test_every_page_is_in_the_list() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index


def test_every_option_and_command_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in set(re.findall(r'"(vtc_[a-z_]+)"', Path(options.__file__).read_text("utf-8"))):
        assert f"`{name}`" in readme, name
    for name in main.commands:
        assert f"`vtc {name}" in readme, name
