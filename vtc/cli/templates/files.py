"""Find the templates in a file: Jinja, `tokenizer_config.json`, `chat_template.json`, or a GGUF file's metadata."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
import yaml

MAX_FILE_BYTES = 1 << 26
"""Maximum size of a file that is read whole. Of a GGUF file, only the metadata at its start is read."""
MAX_GGUF_ENTRIES = 1 << 21
"""Maximum number of values in the metadata of a GGUF file."""
GGUF_MAGIC = b"GGUF"
GGUF_FORMATS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""Formats of numbers, by the types of GGUF's values."""
GGUF_STRING, GGUF_ARRAY = 8, 9
GGUF_TEMPLATE = "tokenizer.chat_template"
TEMPLATE_NAMES = ("tool_use", "default")
"""Names of templates in a list, the preferred first."""


class TemplateFile(NamedTuple):
    """The templates in a file."""

    chat: str = ""
    """The chat template; empty if there is none."""
    response: Mapping[str, Any] | None = None
    """The `response_template`, which describes replies."""


def load_template(path: Path) -> str:
    """Load the chat template in a file. Raises `click.ClickException` if there is none."""
    if not (template := load_templates(path).chat.strip()):
        raise click.ClickException(f"{path}: there is no chat template in it")
    return template


def load_templates(path: Path) -> TemplateFile:
    """Load the templates in a file. Raises `click.ClickException` if it is no such file."""
    with path.open("rb") as file:
        if file.read(len(GGUF_MAGIC)) == GGUF_MAGIC:
            return TemplateFile(_find_in_gguf(file))
        file.seek(0)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise click.ClickException(f"{path}: the file is too large for a template")
    text = data.decode("utf-8", "replace")
    try:
        document = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except (ValueError, RecursionError, yaml.YAMLError):
        return TemplateFile(text)  # Jinja
    if not isinstance(document, dict):
        return TemplateFile()
    response = document.get("response_template", document if "fields" in document else None)
    return TemplateFile(_find_chat_template(document), response if isinstance(response, dict) else None)


def _find_chat_template(document: Mapping[str, Any]) -> str:
    template = document.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = next((named[name] for name in (*TEMPLATE_NAMES, *named) if name in named), None)
    return template if isinstance(template, str) else ""


def _find_in_gguf(file: BinaryIO) -> str:
    """Find the template in the metadata of a GGUF file, of which the first bytes were read; empty if there is none."""
    try:
        _, _, count = struct.unpack("<IQQ", file.read(20))
        for _ in range(min(count, MAX_GGUF_ENTRIES)):
            key = _read_gguf_string(file)
            (kind,) = struct.unpack("<I", file.read(4))
            value = _read_gguf_value(file, kind)
            if key == GGUF_TEMPLATE and isinstance(value, str):
                return value
    except (struct.error, KeyError) as error:
        raise click.ClickException(f"{file.name}: the metadata is damaged: {error}") from None
    return ""


def _read_gguf_value(file: BinaryIO, kind: int) -> Any:
    """Read a value; None for an array, which no template is."""
    if kind == GGUF_STRING:
        return _read_gguf_string(file)
    if kind != GGUF_ARRAY:
        layout = f"<{GGUF_FORMATS[kind]}"
        return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    of, count = struct.unpack("<IQ", file.read(12))
    if of in GGUF_FORMATS:
        file.seek(count * struct.calcsize(f"<{GGUF_FORMATS[of]}"), 1)
    elif count > MAX_GGUF_ENTRIES:
        raise struct.error(f"an array of {count} values")
    else:
        for _ in range(count):
            _read_gguf_value(file, of)
    return None


def _read_gguf_string(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > MAX_FILE_BYTES:
        raise struct.error(f"a string of {length} bytes")
    data = file.read(length)
    if len(data) < length:
        raise struct.error("the file ends inside a string")
    return data.decode("utf-8", "replace")
