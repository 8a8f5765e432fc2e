"""Load profile files, all together or not at all.

Built-in profiles come with the package; the user's own are in separate directories and take precedence by kind and
name. All problems of all files are found before any is reported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from vtc.dialects.builtin import builtin_directory
from vtc.dialects.syntax.description import Description
from vtc.profiles import document as validation
from vtc.profiles.agents import AgentProfile
from vtc.profiles.document import Document, KeyPath, Problem, ProfileError, read_documents
from vtc.profiles.schema import ClientProfile, Match, ModelProfile, PolicyProfile, ServerProfile
from vtc.profiles.stack import UnknownName

__all__ = ["KINDS", "Profile", "ProfileError", "Profiles", "Source", "builtin_directory", "load_profiles", "signature"]

type Profile = AgentProfile | ClientProfile | ModelProfile | PolicyProfile | ServerProfile | Description

EXAMPLES = "examples"
"""Folders of profiles that are not loaded by default."""

KINDS: Mapping[str, type[Profile]] = {
    "client": ClientProfile,
    "dialect": Description,
    "model": ModelProfile,
    "policy": PolicyProfile,
    "server": ServerProfile,
    "agent": AgentProfile,
}
"""The values of `kind:`."""


@dataclass(frozen=True, slots=True)
class Source:
    """The location that a profile was loaded from."""

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

    def get_dialect(self, name: str) -> Description:
        """Return a dialect; raises `UnknownName`, which names the nearest one."""
        if name not in self.dialects:
            raise UnknownName("dialect", name, tuple(self.dialects))
        return self.dialects[name]

    @cached_property
    def rescued(self) -> tuple[Description, ...]:
        """The dialects that are read for every model, the most common ones first."""
        written = Counter(name for model in self.models.values() for name in model.accept if model.accept != "auto")
        rescued = [dialect.rescued for dialect in self.dialects.values()]
        return tuple(sorted(filter(None, rescued), key=lambda dialect: -written[dialect.name]))

    @cached_property
    def unknown_server(self) -> ServerProfile:
        """The profile for servers without one: an error that contains a reply may come from any server."""
        errors = tuple(dict.fromkeys(error for server in self.servers.values() for error in server.errors))
        return ServerProfile(name="unknown", match=Match(), errors=errors)

    def counts(self) -> dict[str, int]:
        """Count the profiles of each kind."""
        return {
            kind: len(getattr(self, kind))
            for kind in ("clients", "models", "servers", "policies", "dialects", "agents")
        }

    def format_counts(self) -> str:
        """Format the counts: `5 clients, 1 policy, …`."""
        kinds = {plural(kind, 2): kind for kind in KINDS}
        return ", ".join(f"{count} {plural(kinds[several], count)}" for several, count in self.counts().items())


def plural(kind: str, count: int) -> str:
    """Return `policies` for any count but 1, else `policy`."""
    return kind if count == 1 else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


def load_profiles(directories: Sequence[Path]) -> Profiles:
    """Load the profiles of every `.yaml` and `.yml` file below the directories, or of files; later ones win.

    Skips hidden files and folders named `examples`: users copy those, or name them explicitly. Raises `ProfileError`
    with every problem found.
    """
    folders = [_folder(directory) for directory in directories]
    unreadable = [problem for folder in folders for problem in folder.unreadable]
    problems = [problem for folder in folders for problem in folder.problems]
    merged: dict[tuple[str, str], tuple[Profile, Source]] = {}
    for folder in folders:
        merged |= folder.profiles
    # A name that seems to be missing may be defined in a file that could not be read.
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


def add_policy(profiles: Profiles, policy: Mapping[str, Any]) -> Profiles:
    """Add a policy given as plain data, which needs no `kind`, `name` and `match`. Raises `ProfileError`."""
    problems: list[Problem] = []
    value = {"name": "given", "match": {}, **policy, "kind": "policy"}
    added = _profile(Document(Path("policy"), value, {(): 0}), problems, is_builtin=False)
    if not isinstance(added, PolicyProfile):
        raise ProfileError(problems)
    return replace(profiles, policies={**profiles.policies, added.name: added})


class _Folder(NamedTuple):
    """The contents of a directory or file of profiles."""

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
    """Load the built-in profiles once per state of their files, since they rarely change while the user edits other
    ones."""
    return _contents(directory, is_builtin=True)


def _contents(directory: Path, *, is_builtin: bool) -> _Folder:
    """Load the profiles of a directory, each with its source."""
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
    """Map every file that `load` would read to its time of change (ns) and size, to detect edits."""
    states = {}
    for file in (file for directory in directories for file in _files(directory)):
        with suppress(FileNotFoundError):  # editors replace files
            status = os.stat(file)
            states[file] = (status.st_mtime_ns, status.st_size)
    return states


def _files(directory: Path) -> Iterator[str]:
    """Yield the paths of the profiles in a directory, or the path itself if it is a file."""
    if directory.is_file():
        yield str(directory)
    for folder, folders, names in os.walk(directory):  # faster than `Path.rglob`; this runs every second
        folders[:] = [name for name in folders if name != EXAMPLES]
        yield from (os.path.join(folder, name) for name in names if _is_profile(name))


def _is_profile(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")


def _documents(directory: Path, problems: list[Problem]) -> Iterator[Document]:
    for file in sorted(map(Path, _files(directory))):
        documents, faults = read_documents(file)
        problems += faults
        yield from documents


def _profile(document: Document, problems: list[Problem], *, is_builtin: bool) -> Profile | None:
    """Convert the document to a profile; None if it is invalid, with the reasons in `problems`."""
    value = document.value
    if not isinstance(value, dict):
        problems.append(document.problem((), "a profile is a mapping; begin it with `kind: …` and `name: …`"))
        return None
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        fault = f"{validation.format_value(kind)} is no kind of profile" if "kind" in value else "missing"
        choice = validation.join_words(f"`kind: {known}`" for known in KINDS)
        problems.append(
            document.problem(("kind",), f"{fault}; write {choice}{validation.suggest_nearest(kind, KINDS)}")
        )
        return None
    try:
        profile = validation.convert(document, KINDS[kind])
    except ProfileError as error:
        problems += error.problems
        return None
    # The tests render the templates of all built-in dialects.
    faults = [*profile.find_faults(template=not is_builtin)] if isinstance(profile, Description) else []
    problems += [document.problem((fault.key,), str(fault)) for fault in faults]
    return None if faults else profile


def _dangling_names(documents: Sequence[Document]) -> Iterator[Problem]:
    """Yield a problem for each dialect that no document defines; a definition with problems counts."""
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
