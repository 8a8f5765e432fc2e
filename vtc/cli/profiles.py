"""`vtc profiles`: list profiles, and print dialects in another form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vtc.cli.common import json_output, load_profiles, profile_directories, show_json, show_table
from vtc.deriving import UnknownFormError, build_response_template
from vtc.profiles import Facts
from vtc.profiles.loader import Profile, Profiles
from vtc.profiles.matching import choose_best
from vtc.profiles.schema import ReasoningTags
from vtc.profiles.stack import UnknownName


@click.group(invoke_without_command=True, short_help="List all profiles, or print a dialect in another form.")
@click.pass_context
@profile_directories
@click.option("--markdown", is_flag=True, help="Print models and dialects as Markdown tables.")
@json_output
def profiles(context: click.Context, directories: tuple[Path, ...], markdown: bool, as_json: bool) -> None:
    """List all profiles and the requests that they match."""
    if context.invoked_subcommand:
        return
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


@profiles.command()
@click.argument("name", required=False)
@click.option(
    "--as", "form", type=click.Choice(["response_template"]), required=True, help="The form in which it is printed."
)
@click.option("--model", default="", help="The model with whose tags of reasoning it is printed; otherwise `<think>`.")
@profile_directories
def dialect(name: str | None, form: str, model: str, directories: tuple[Path, ...]) -> None:
    """Print a dialect as a tokenizer's `response_template`, with which Transformers (5.13 or later) parses replies.

    It describes the calls as the dialect writes them, without the other spellings that VTC reads, and without repairs.
    Without NAME, all dialects are listed, with the reason of those that have no such form.
    """
    profiles = load_profiles(directories)
    profile = choose_best(profiles.models, Facts(model=model), profiles.sources).profile if model else None
    tags = (profile and profile.reasoning) or ReasoningTags()
    if name:
        try:
            show_json(build_response_template(profiles.get_dialect(name), tags.open, tags.close))
        except UnknownName as error:
            raise click.UsageError(str(error)) from None
        except UnknownFormError as error:
            raise click.ClickException(f"dialect {name} has no {form}: {error}") from None
        return
    expressed = f"has a {form}"
    names: dict[str, list[str]] = {expressed: []}
    for dialect in profiles.dialects.values():
        try:
            build_response_template(dialect, tags.open, tags.close)
            names[expressed].append(dialect.name)
        except UnknownFormError as error:
            names.setdefault(str(error), []).append(dialect.name)
    for reason in names:
        click.echo(f"- {reason}: {', '.join(names[reason])}")


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
