"""The tools of the tasks: files in one folder, and nothing else.

There is no network and no shell, and a path that leads out of the folder is refused, through a link as well.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Refused(ValueError):
    """A call that cannot be carried out; the model is told why."""


class Folder:
    """Carries out calls in one folder; each public method is a tool, as `DECLARED` has it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def run(self, name: str, arguments: str) -> str:
        """Carry out one call, and return its result or what is wrong with it."""
        if name not in PARAMETERS:
            return f"error: there is no tool {name!r}"
        tool: Callable[..., str] = getattr(self, name)
        try:
            given = json.loads(arguments)
            inspect.signature(tool).bind(**given)
            return tool(**{key: str(value) for key, value in given.items()})
        except OSError as error:
            return f"error: {error.strerror}"  # without the path, which is another one in every run
        except (ValueError, TypeError) as error:
            return f"error: {error}"

    def list_files(self, path: str = ".") -> str:
        return "\n".join(self._name(file) for file in self._files(path)) or "(no files)"

    def read_file(self, path: str) -> str:
        return self._inside(path).read_text(errors="replace")

    def write_file(self, path: str, content: str) -> str:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        return f"wrote {self._name(file)}"

    def replace_in_file(self, path: str, old: str, new: str) -> str:
        file = self._inside(path)
        text = file.read_text()
        if not old or old not in text:
            raise Refused(f"{old!r} is not in {path}")
        file.write_text(text.replace(old, new))
        return f"changed {self._name(file)}"

    def search(self, text: str) -> str:
        found = [
            f"{self._name(file)}:{number}: {line}"
            for file in self._files(".")
            for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
            if text in line
        ]
        return "\n".join(found) or "(not found)"

    def _inside(self, path: str) -> Path:
        whole = (self.root / path).resolve()
        if not whole.is_relative_to(self.root):
            raise Refused(f"{path} is outside of the folder")
        return whole

    def _files(self, path: str) -> list[Path]:
        # A link may lead out of the folder, and is no file of it then.
        inside = (file for file in self._inside(path).rglob("*") if file.resolve().is_relative_to(self.root))
        return sorted(file for file in inside if file.is_file())

    def _name(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()


def _declared(name: str, description: str, required: Mapping[str, str], **optional: str) -> dict[str, Any]:
    shown = {**required, **optional}
    properties = {key: {"type": "string", "description": text} for key, text in shown.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


PATH = {"path": "Path of the file"}
DECLARED = [
    _declared("list_files", "Lists all files.", {}, path="Folder to look into, by default all"),
    _declared("read_file", "Reads a file.", PATH),
    _declared("write_file", "Creates or overwrites a file.", {**PATH, "content": "The whole text of the file"}),
    _declared("replace_in_file", "Replaces a text in a file.", {**PATH, "old": "Text to find", "new": "New text"}),
    _declared("search", "Finds lines in all files.", {"text": "Text to find"}),
]
"""The tools as the API declares them."""
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in DECLARED}
"""The schema of each tool, by its name."""
