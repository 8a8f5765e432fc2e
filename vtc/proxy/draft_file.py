"""A draft of the dialect of a reply, as a file that may be put into the user's folder of profiles: the page in mitmweb
and the one in a terminal show it, and write it when they are told to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from vtc.events import Call
from vtc.reporting import Case, draft_dialect
from vtc.scrub import escape_invisible

MAX_DIALECT_NAME_CHARS = 40


@dataclass(frozen=True, slots=True)
class DraftFile:
    """The file, and what it reads of the reply that it was drafted of."""

    text: str
    calls: tuple[Call, ...]
    problem: str
    """Why no dialect can be what the model wrote; empty if one may."""
    path: Path | None
    """Where it may be put; None if it reads no call, or there is no folder for it."""

    @classmethod
    def of(cls, case: Case, folders: Iterable[Path], known: Collection[str]) -> DraftFile:
        """Draft the dialect of a reply, under a name that no dialect has; raises ValueError if nothing is to draft.

        Takes longer than the proxy can wait.
        """
        folder = next((folder for folder in folders if folder.is_dir()), None)
        name = _choose_free_name(case.name.rpartition(" ")[0], folder, known)
        tools = case.toolset()
        draft = draft_dialect(case.text, tools, name)
        if draft is None:
            raise ValueError(f"none of the tools stands in the reply with arguments: {', '.join(tools)}")
        text = "".join(f"{line}\n" for line in draft.lines(case.text))
        path = folder / f"{name}.yaml" if folder and draft.calls else None
        return cls(text, draft.calls, draft.problem, path)

    def describe(self) -> Iterator[str]:
        """Say what it reads of the reply."""
        for call in self.calls:
            yield escape_invisible(f"it reads {call.call.name} {call.call.arguments}")
        if self.problem:
            yield f"VTC cannot express this form: {self.problem}"
        elif not self.calls:
            yield "it reads no call in this reply yet: put the holes where they belong"

    def write(self) -> None:
        """Write it; raises OSError, also if there is a file of this name."""
        if self.path:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(self.text)


def _choose_free_name(model: str, folder: Path | None, known: Collection[str]) -> str:
    """Name a dialect after the model that writes it."""
    stem = re.sub(r"[^a-z0-9]+", "-", model.lower())[:MAX_DIALECT_NAME_CHARS].strip("-") or "my-dialect"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(name for name in names if name not in known and not (folder and (folder / f"{name}.yaml").exists()))
