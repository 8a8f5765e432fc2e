"""Profile files, read all together or not at all.

Built-in profiles come with the package, a user's own stand in directories of theirs and win by kind and name.
Every problem of every file is found before any of them is reported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from vtc.dialects.syntax.description import Description
from vtc.profiles import document as validation
from vtc.profiles.agents import AgentProfile
from vtc.profiles.document import Document, KeyPath, Problem, ProfileError, read
from vtc.profiles.schema import ClientProfile, Match, ModelProfile, PolicyProfile, ServerProfile
from vtc.profiles.settings import UnknownName

__all__ = ["KINDS", "Profile", "ProfileError", "Profiles", "Source", "builtin_directory", "load", "signature"]

type Profile = AgentProfile | ClientProfile | ModelProfile | PolicyProfile | ServerProfile | Description

EXAMPLES = "examples"
"""Folders of profiles that do not hold by themselves."""

KINDS: Mapping[str, type[Profile]] = {
    "client": ClientProfile,
    "dialect": Description,
    "model": ModelProfile,
    "policy": PolicyProfile,
    "server": ServerProfile,
    "agent": AgentProfile,
}
"""What may stand after `kind:`."""


@dataclass(frozen=True, slots=True)
class Source:
    """The place that a profile came from."""

    path: Path
    line: int
    builtin: bool

    def __str__(self) -> str:
        return "built-in" if self.builtin else f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Profiles:
    """The profiles by name, and the source of each by kind and name."""

    clients: Mapping[str, ClientProfile]
    models: Mapping[str, ModelProfile]
    servers: Mapping[str, ServerProfile]
    dialects: Mapping[str, Description]
    policies: Mapping[str, PolicyProfile]
    agents: Mapping[str, AgentProfile]
    sources: Mapping[tuple[str, str], Source]

    @cached_property
    def rescued(self) -> tuple[Description, ...]:
        """The dialects that are read from every model, those first that most models write."""
        written = Counter(name for model in self.models.values() for name in model.accept if model.accept != "auto")
        rescued = [dialect.rescued for dialect in self.dialects.values()]
        return tuple(sorted(filter(None, rescued), key=lambda dialect: -written[dialect.name]))

    @cached_property
    def unknown_server(self) -> ServerProfile:
        """The profile of a server that none matches: an error that carries a reply may be any server's."""
        errors = tuple(dict.fromkeys(error for server in self.servers.values() for error in server.errors))
        return ServerProfile(name="unknown", match=Match(), errors=errors)

    def counts(self) -> dict[str, int]:
        """Count the profiles of each kind."""
        return {
            kind: len(getattr(self, kind))
            for kind in ("clients", "models", "servers", "policies", "dialects", "agents")
        }

    def format_counts(self) -> str:
        """Write how many there are, `5 clients, 1 policy, …`."""
        kinds = {plural(kind, 2): kind for kind in KINDS}
        return ", ".join(f"{count} {plural(kinds[several], count)}" for several, count in self.counts().items())


def plural(kind: str, count: int) -> str:
    """Return `policies` for several, `policy` for one."""
    return kind if count == 1 else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


def builtin_directory() -> Path:
    """Find the profiles that come with the package: inside it when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "builtin_profiles"
    return installed if installed.is_dir() else package.parent / "profiles"


def load(directories: Sequence[Path]) -> Profiles:
    """Load the profiles of every `.yaml` and `.yml` file below the directories, or of files; later ones win.

    Hidden files are skipped, and folders named `examples`: those are to be copied, or named themselves.
    Raises `ProfileError` with every problem found.
    """
    folders = [_folder(directory) for directory in directories]
    unreadable = [problem for folder in folders for problem in folder.unreadable]
    problems = [problem for folder in folders for problem in folder.problems]
    merged: dict[tuple[str, str], tuple[Profile, Source]] = {}
    for folder in folders:
        merged |= folder.profiles
    # What seems to be missing may stand in a file that could not be read.
    if not unreadable:
        problems += _dangling_names([document for folder in folders for document in folder.documents])
    if unreadable or problems:
        raise ProfileError([*unreadable, *problems])
    profiles = [profile for profile, _ in merged.values()]
    return Profiles(
        clients={profile.name: profile for profile in profiles if isinstance(profile, ClientProfile)},
        models={profile.name: profile for profile in profiles if isinstance(profile, ModelProfile)},
        servers={profile.name: profile for profile in profiles if isinstance(profile, ServerProfile)},
        dialects={profile.name: profile for profile in profiles if isinstance(profile, Description)},
        policies={profile.name: profile for profile in profiles if isinstance(profile, PolicyProfile)},
        agents={profile.name: profile for profile in profiles if isinstance(profile, AgentProfile)},
        sources={key: source for key, (_, source) in merged.items()},
    )


class _Folder(NamedTuple):
    """What stands in a directory of profiles, or in a file of them."""

    documents: Sequence[Document] = ()
    profiles: Mapping[tuple[str, str], tuple[Profile, Source]] = MappingProxyType({})
    unreadable: Sequence[Problem] = ()
    problems: Sequence[Problem] = ()


def _folder(directory: Path) -> _Folder:
    if not directory.exists():
        problem = Problem(str(directory), 0, "", "no such directory; create it or correct the path")
        return _Folder(unreadable=[problem])
    if directory.resolve() == builtin_directory():
        folder = _builtin(directory, tuple(signature([directory]).items()))
        return _contents(directory, is_builtin=True) if folder.unreadable else folder
    return _contents(directory, is_builtin=False)


@lru_cache(maxsize=1)
def _builtin(directory: Path, _: object) -> _Folder:
    """Read the built-in profiles once in each of their states: they stay what they are while the user's are edited."""
    return _contents(directory, is_builtin=True)


def _contents(directory: Path, *, is_builtin: bool) -> _Folder:
    """Read the profiles of a directory, each with its place."""
    unreadable: list[Problem] = []
    problems: list[Problem] = []
    profiles: dict[tuple[str, str], tuple[Profile, Source]] = {}
    documents = [*_documents(directory, unreadable)]
    for document in documents:
        profile = _profile(document, problems, is_builtin=is_builtin)
        if profile is None:
            continue
        key = (profile.kind, profile.name)
        if key in profiles:
            first = profiles[key][1]
            problems.append(
                document.problem(
                    ("name",),
                    f"{profile.kind} {profile.name!r} is already defined at {first.path}:{first.line}; "
                    "rename or remove one of the two",
                )
            )
            continue
        profiles[key] = (profile, Source(document.file, document.lines["name",], is_builtin))
    return _Folder(documents, profiles, unreadable, problems)


def signature(directories: Sequence[Path]) -> Mapping[str, tuple[int, int]]:
    """Time of change (ns) and size of every file that `load` would read: it differs when one of them was edited."""
    states = {}
    for file in (file for directory in directories for file in _files(directory)):
        with suppress(FileNotFoundError):  # editors replace files
            status = os.stat(file)
            states[file] = (status.st_mtime_ns, status.st_size)
    return states


def _files(directory: Path) -> Iterator[str]:
    """Yield the paths of the profiles in a directory, or of the one that this is, whatever its name."""
    if directory.is_file():
        yield str(directory)
    for folder, folders, names in os.walk(directory):  # faster than `Path.rglob`; this is done every second
        folders[:] = [name for name in folders if name != EXAMPLES]
        yield from (os.path.join(folder, name) for name in names if _is_profile(name))


def _is_profile(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")


def _documents(directory: Path, problems: list[Problem]) -> Iterator[Document]:
    for file in sorted(map(Path, _files(directory))):
        documents, faults = read(file)
        problems += faults
        yield from documents


def _profile(document: Document, problems: list[Problem], *, is_builtin: bool) -> Profile | None:
    """Make a profile of the document; None if it is none, and `problems` say why."""
    value = document.value
    if not isinstance(value, dict):
        problems.append(document.problem((), "a profile is a mapping; begin it with `kind: …` and `name: …`"))
        return None
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        fault = f"{validation.format_value(kind)} is no kind of profile" if "kind" in value else "missing"
        choice = validation.join_words(f"`kind: {known}`" for known in KINDS)
        problems.append(document.problem(("kind",), f"{fault}; write {choice}{validation.nearest(kind, KINDS)}"))
        return None
    try:
        profile = validation.convert(document, KINDS[kind])
    except ProfileError as error:
        problems += error.problems
        return None
    # Of ours the tests have rendered every one.
    faults = [*profile.find_faults(template=not is_builtin)] if isinstance(profile, Description) else []
    problems += [document.problem((fault.key,), str(fault)) for fault in faults]
    return None if faults else profile


def _dangling_names(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a problem for each dialect that no document defines; one that has problems of its own is defined."""
    values = [document.value for document in documents if isinstance(document.value, dict)]
    dialects = sorted({str(value.get("name")) for value in values if value.get("kind") == "dialect"})
    for document in documents:
        value: Any = document.value
        if not isinstance(value, dict) or value.get("kind") == "dialect":
            continue
        accept = value.get("accept")
        named: list[tuple[KeyPath, Any]] = [(("dialect",), value.get("dialect"))]
        named += [(("accept", i), name) for i, name in enumerate(accept if isinstance(accept, list) else [])]
        marks = value.get("shown_by")
        shown = marks.get("dialects") if isinstance(marks, dict) else None
        named += [
            (("shown_by", "dialects", i), name) for i, name in enumerate(shown if isinstance(shown, list) else [])
        ]
        for path, name in named:
            if isinstance(name, str) and name not in dialects:
                yield document.problem(path, str(UnknownName("dialect", name, dialects)))
