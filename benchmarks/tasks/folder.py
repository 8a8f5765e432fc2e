"""The tools of the tasks, which access the files of one folder only.

There is no network and no shell. A path to the outside of the folder is rejected, also through a link.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class ToolError(ValueError):
    """A call that cannot be executed; its message is sent to the model."""


class Folder:
    """Executor of calls in one folder; each public method is a tool of `DECLARED_TOOLS`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def run(self, name: str, arguments: str) -> str:
        """Execute one call and return its result or an error message."""
        if name not in PARAMETERS:
            return f"error: there is no tool {name!r}"
        tool: Callable[..., str] = getattr(self, name)
        try:
            given = json.loads(arguments)
            inspect.signature(tool).bind(**given)
            return tool(**{key: str(value) for key, value in given.items()})
        except OSError as error:
            return f"error: {error.strerror}"  # without the path, which differs in every run
        except (ValueError, TypeError) as error:
            return f"error: {error}"

    def list_files(self, path: str = ".") -> str:
        return "\n".join(self._format_path(file) for file in self._find_files(path)) or "(no files)"

    def read_file(self, path: str) -> str:
        return self._resolve(path).read_text(errors="replace")

    def write_file(self, path: str, content: str) -> str:
        file = self._resolve(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return f"wrote {self._format_path(file)}"

    def replace_in_file(self, path: str, old: str, new: str) -> str:
        file = self._resolve(path)
        text = file.read_text()
        if not old or old not in text:
            raise ToolError(f"{old!r} is not in {path}")
        file.write_text(text.replace(old, new))
        return f"changed {self._format_path(file)}"

    def search(self, text: str) -> str:
        matches = [
            f"{self._format_path(file)}:{number}: {line}"
            for file in self._find_files(".")
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
            if text in line
        ]
        return "\n".join(matches) or "(not found)"

    def _resolve(self, path: str) -> Path:
        whole = (self.root / path).resolve()
        if not whole.is_relative_to(self.root):
            raise ToolError(f"{path} is outside of the folder")
        return whole

    def _find_files(self, path: str) -> list[Path]:
        # Skip links to files outside the folder.
        inside = (file for file in self._resolve(path).rglob("*") if file.resolve().is_relative_to(self.root))
        return sorted(file for file in inside if file.is_file())

    def _format_path(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


def _declare_tool(name: str, description: str, required: Mapping[str, str], **optional: str) -> dict[str, Any]:
    shown = {**required, **optional}
    properties = {key: {"type": "string", "description": text} for key, text in shown.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


PATH = {"path": "Path of the file"}
DECLARED_TOOLS = [
    _declare_tool("list_files", "Lists all files.", {}, path="Folder to look into, by default all"),
    _declare_tool("read_file", "Reads a file.", PATH),
    _declare_tool("write_file", "Creates or overwrites a file.", {**PATH, "content": "The whole text of the file"}),
    _declare_tool("replace_in_file", "Replaces a text in a file.", {**PATH, "old": "Text to find", "new": "New text"}),
    _declare_tool("search", "Finds lines in all files.", {"text": "Text to find"}),
]
"""The tools as the API declares them."""
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in DECLARED_TOOLS}
"""The schema of each tool by name."""
