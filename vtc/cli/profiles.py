"""`vtc profiles`: list profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vtc.cli.common import json_output, load_profiles, profile_directories, show_json, show_table
from vtc.profiles.loader import Profile, Profiles


@click.command(short_help="List all profiles.")
@profile_directories
@click.option("--markdown", is_flag=True, help="Print models and dialects as Markdown tables.")
@json_output
def profiles(directories: tuple[Path, ...], markdown: bool, as_json: bool) -> None:
    """List all profiles and the requests that they match."""
    profiles = load_profiles(directories)
    if as_json:
        show_json(_build_json(profiles))
        return
    if markdown:
        click.echo(_render_markdown(profiles))
        return
    for kind in ("clients", "models", "servers", "policies"):
        some: Mapping[str, Profile] = getattr(profiles, kind)
        rows = [
            (profile.name, _format_match(getattr(profile, "match", None)), _format_accepted(profile))
            for profile in some.values()
        ]
        show_table(("name", "matches", "reads"), rows, title=kind)
    show_table(
        ("name", "description"),
        [(dialect.name, dialect.description) for dialect in profiles.dialects.values()],
        title="dialects",
    )
    show_table(
        ("name", "description", "API"),
        [(agent.name, agent.description, agent.api) for agent in profiles.agents.values()],
        title="agents",
    )


def _build_json(profiles: Profiles) -> dict[str, list[dict[str, Any]]]:
    kinds: dict[str, Mapping[str, Profile]] = {kind: getattr(profiles, kind) for kind in profiles.counts()}
    return {
        kind: [
            {
                "name": profile.name,
                "description": profile.description,
                "source": str(profiles.sources[profile.kind, profile.name]),
            }
            for profile in named.values()
        ]
        for kind, named in kinds.items()
    }


def _render_markdown(profiles: Profiles) -> str:
    lines = ["| model | names that match | dialects read |", "|---|---|---|"]
    for model in profiles.models.values():
        globs = (model.match.model,) if isinstance(model.match.model, str) else model.match.model
        accept = "every framed one" if model.accept == "auto" else ", ".join(model.accept)
        names = ", ".join(f"`{glob}`" for glob in globs)
        lines.append(f"| {model.description or model.name} | {names} | {accept} |")
    lines += ["", "| dialect | |", "|---|---|"]
    lines += [f"| `{dialect.name}` | {escape_cell(dialect.description)} |" for dialect in profiles.dialects.values()]
    return "\n".join(lines)


def escape_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _format_accepted(profile: Any) -> str:
    accept = getattr(profile, "accept", ())
    return accept if isinstance(accept, str) else ", ".join(accept)


def _format_match(match: Any) -> str:
    tests = {key: getattr(match, key) for key in ("user_agent", "model", "host", "path", "header", "body")}
    return "; ".join(
        f"{key}: {globs if isinstance(globs, str) else ', '.join(globs)}" for key, globs in tests.items() if globs
    )
