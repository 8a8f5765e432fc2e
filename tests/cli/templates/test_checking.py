"""Test `vtc check --template`: known calls are rendered by a chat template and read back."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.templates.made_templates import HERMES, PLAIN
from vtc.cli import main


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def pack_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def make_gguf(template: str) -> bytes:
    """Make the start of a GGUF file: its metadata, with numbers, lists and the template."""
    entries = [
        (b"general.size", struct.pack("<I", 4) + struct.pack("<I", 7)),
        (b"tokens", struct.pack("<IIQ", 9, 8, 2) + pack_string("<s>") + pack_string("</s>")),
        (b"scores", struct.pack("<IIQ", 9, 6, 2) + struct.pack("<2f", 0.5, 1.5)),
        (b"tokenizer.chat_template", struct.pack("<I", 8) + pack_string(template)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    return head + b"".join(struct.pack("<Q", len(key)) + key + value for key, value in entries)


TEMPLATES = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": HERMES}]
FILES = {
    "chat.jinja": HERMES.encode(),
    "chat_template.json": json.dumps({"chat_template": HERMES}).encode(),
    "tokenizer_config.json": json.dumps({"bos_token": "<s>", "chat_template": TEMPLATES}).encode(),
    "model.gguf": make_gguf(HERMES),
}


@pytest.mark.parametrize("name", FILES)
def test_a_dialect_that_reads_the_calls_of_its_template_is_exact(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    result = run("--template", tmp_path / name, "--dialect", "hermes")
    assert result.exit_code == 0, result.output
    assert result.output.endswith("13 exact\n")
    assert "exact  two calls\n" in result.output


def test_a_case_that_is_read_differently_is_shown(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES.replace("call.function | tojson", "call.function | tojson | lower"))
    result = run("--template", tmp_path / "chat.jinja", "--dialect", "hermes")
    assert result.exit_code == 1
    assert "different  quotes and braces\n" in result.output
    assert '    - write_note {"body": "x < y && {z: [1]}", "title": "He said \\"no\\""}\n' in result.output
    assert '    + write_note {"body": "x < y && {z: [1]}", "title": "he said \\"no\\""}\n' in result.output


def test_another_dialect_reads_no_call(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run("--template", tmp_path / "chat.jinja", "--dialect", "mistral", "--json")
    found = json.loads(result.output)
    assert result.exit_code == 1
    assert not found["ok"]
    assert {case["outcome"] for case in found["cases"]} == {"text"}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("chat.jinja", PLAIN.encode(), "13 not written"),
        ("chat.jinja", b"{% for", "13 not written"),
        ("chat.jinja", b"  ", "there is no chat template in it"),
        ("chat.jinja", b"x" * (1 << 19), "it is too long to be inspected"),
        ("config.json", b'{"chat_template": [7]}', "there is no chat template in it"),
        ("config.json", b"[]", "there is no chat template in it"),
        ("model.gguf", make_gguf(HERMES)[:70], "the metadata is damaged"),
        ("model.gguf", b"GGUF" + b"\xff" * 90, "the metadata is damaged"),
        ("model.gguf", make_gguf(" "), "there is no chat template in it"),
    ],
)
def test_a_file_without_calls_is_reported(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    result = run("--template", tmp_path / name, "--dialect", "hermes")
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dialect", "hermes"], "give --template and --dialect together"),
        (["--template", "chat.jinja"], "give --template and --dialect together"),
        (["--template", "chat.jinja", "--dialect", "hermez"], "there is no dialect 'hermez'"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run(*(str(tmp_path / one) if one == "chat.jinja" else one for one in options))
    assert result.exit_code == 2
    assert message in result.output
