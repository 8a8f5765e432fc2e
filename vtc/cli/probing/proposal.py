"""The profiles that a probe proposes, and their files, in which comments state the observations."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from vtc.profiles import loader
from vtc.profiles.loader import Profiles, Source
from vtc.profiles.planner import Planner
from vtc.profiles.schema import Match, ModelProfile, ServerProfile
from vtc.profiles.settings import Settings
from vtc.scrub import escape_invisible, scrub_text


@dataclass(frozen=True, slots=True)
class Proposal:
    """A profile of a model and one of its server, with the observation behind each key (`model.tools`)."""

    model: ModelProfile
    server: ServerProfile
    why: Mapping[str, str] = field(default_factory=dict)

    def build_planner(self, profiles: Profiles) -> Planner:
        """Build a planner that knows these profiles in addition to all others."""
        own: tuple[ModelProfile | ServerProfile, ...] = (self.model, self.server)
        sources: dict[tuple[str, str], Source] = {
            (profile.kind, profile.name): Source(Path("proposed"), 1, builtin=False) for profile in own
        }
        proposed = replace(
            profiles,
            models={**profiles.models, self.model.name: self.model},
            servers={**profiles.servers, self.server.name: self.server},
            sources={**profiles.sources, **sources},
        )
        return Planner(proposed, Settings())

    def copy_with(
        self, *, model: Mapping[str, Any] | None = None, server: Mapping[str, Any] | None = None, **why: str
    ) -> Proposal:
        """Return a copy with changed keys; `why` contains observations as `model_KEY` or `server_KEY`."""
        return Proposal(
            with_fields(self.model, **(model or {})),
            with_fields(self.server, **(server or {})),
            {**self.why, **{key.replace("_", ".", 1): text for key, text in why.items()}},
        )

    def write(self, directory: Path, head: str, secrets: Sequence[str] = ()) -> list[Path]:
        """Write both files without these secrets. Raises `ProfileError` if the profiles are invalid."""
        directory.mkdir(parents=True, exist_ok=True)
        files = []
        for profile in (self.model, self.server):
            file = directory / f"{profile.kind}-{profile.name}.yaml"
            file.write_text(scrub_text(self.render_profile(profile, head), secrets), "utf-8")
            files.append(file)
        loader.load_profiles([loader.builtin_directory(), *files])
        return files

    def render_profile(self, profile: ModelProfile | ServerProfile, head: str) -> str:
        """Render the keys of a profile that differ from the defaults as YAML, with comments."""
        lines = [f"# {line}" for line in head.splitlines()]
        keys = msgspec.to_builtins(profile)
        plain = msgspec.to_builtins(type(profile)(name=profile.name, match=Match()))
        for key, value in keys.items():
            if key not in ("kind", "name", "match") and f"{profile.kind}.{key}" not in self.why and value == plain[key]:
                continue
            if isinstance(value, dict):
                defaults = plain[key] if isinstance(plain[key], dict) else {}
                value = {
                    name: inner for name, inner in value.items() if name not in defaults or inner != defaults[name]
                }
            why = escape_invisible(" ".join(self.why.get(f"{profile.kind}.{key}", "").split()))
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}" + (f"  # {why}" if why else ""))
        return "\n".join(lines) + "\n"


def create_proposal(
    profiles: Profiles, *, model: str, where: str, base: ModelProfile | None, server: ServerProfile | None
) -> Proposal:
    """Create a proposal from the known profiles of a model and of a server; it matches only these two."""
    # If the known profile is already the user's own for this address, its name ends with the address: do not repeat it.
    kind = (server.name if server else "server").removesuffix(f"-{_normalize_name(where)}")
    at = Match(host=(glob.escape(where),))
    own_model = base or ModelProfile(name="", match=Match())
    own_server = server or ServerProfile(name="", match=Match())
    why = {
        **_list_inherited_keys("model", own_model, base.name if base else ""),
        **_list_inherited_keys("server", own_server, server.name if server else ""),
        "model.match": "the probed model and server",
        "server.match": "the probed server",
    }
    return Proposal(
        with_fields(
            own_model,
            name=_choose_name(model, profiles, "model"),
            description=f"{model} at {where}",
            match=Match(model=(glob.escape(model),), host=at.host),
        ),
        with_fields(
            own_server,
            name=_choose_name(f"{kind}-{where}", profiles, "server"),
            description=f"{own_server.description or 'the server'} at {where}",
            match=at,
            owned_by=(),
        ),
        why,
    )


def _list_inherited_keys(kind: str, profile: ModelProfile | ServerProfile, name: str) -> dict[str, str]:
    """Return a comment for each key of the known profile that differs from the default."""
    plain = type(profile)(name="", match=Match())
    keys = [key for key in profile.__struct_fields__ if getattr(profile, key) != getattr(plain, key)]
    return {
        f"{kind}.{key}": f"as in profile {name}"
        for key in keys
        if name and key not in ("name", "description", "match", "owned_by")
    }


def _choose_name(text: str, profiles: Profiles, kind: str) -> str:
    """Choose the name of a profile; never the name of a built-in one, because it would replace that."""
    name = _normalize_name(text) or kind
    source = profiles.sources.get((kind, name))
    return f"{name}-probed" if source and source.builtin else name


def _normalize_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.casefold()).strip("-.")
