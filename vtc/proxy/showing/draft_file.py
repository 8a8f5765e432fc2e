"""Draft the dialect of a reply as a file for the user's folder of profiles.

The page in mitmweb and the terminal interface show the draft, and write it on request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from vtc.deriving import draft_dialect
from vtc.events import Call
from vtc.reporting import Case
from vtc.scrub import escape_invisible

MAX_DIALECT_NAME_CHARS = 40
"""Maximum length of a dialect name that is derived from a model name."""


@dataclass(frozen=True, slots=True)
class DraftFile:
    """The file, and the calls that it parses in the reply."""

    text: str
    calls: tuple[Call, ...]
    problem: str
    """The reason why no dialect can express the reply; empty if one can."""
    path: Path | None
    """The path to write to; None if the draft parses no call or there is no folder."""

    @classmethod
    def of(cls, case: Case, folders: Iterable[Path], known: Collection[str]) -> DraftFile:
        """Draft the dialect of a reply under an unused name; raises ValueError if the reply has nothing to draft from.

        Too slow for the event loop; run it in a thread.
        """
        folder = next((folder for folder in folders if folder.is_dir()), None)
        name = _choose_free_name(case.name.rpartition(" ")[0], folder, known)
        tools = case.resolve_tools()
        draft = draft_dialect(case.text, tools, name)
        if draft is None:
            raise ValueError(f"the reply contains no offered tool with arguments: {', '.join(tools)}")
        text = "".join(f"{line}\n" for line in draft.render_lines())
        path = folder / f"{name}.yaml" if folder and draft.calls else None
        return cls(text, draft.calls, draft.problem, path)

    def describe(self) -> Iterator[str]:
        """Describe the calls that the draft parses in the reply."""
        for call in self.calls:
            yield escape_invisible(f"the draft reads {call.call.name} {call.call.arguments}")
        if self.problem:
            yield f"VTC cannot express this form: {self.problem}"
        elif not self.calls:
            yield "the draft reads no call in this reply yet: put the holes where they belong"

    def write(self) -> None:
        """Write the file; raises OSError, also if it exists."""
        if self.path:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(self.text)


def _choose_free_name(model: str, folder: Path | None, known: Collection[str]) -> str:
    """Derive an unused dialect name from the name of the model."""
    stem = re.sub(r"[^a-z0-9]+", "-", model.lower())[:MAX_DIALECT_NAME_CHARS].strip("-") or "my-dialect"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(name for name in names if name not in known and not (folder and (folder / f"{name}.yaml").exists()))
