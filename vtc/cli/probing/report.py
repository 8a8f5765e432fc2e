"""What a probe found out, printed for people and as JSON: findings, scenarios, the command and what clients set."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from vtc.cli.common import show_table
from vtc.cli.probing import words
from vtc.cli.probing.findings import findings
from vtc.cli.probing.probe import ProbeRecord
from vtc.cli.probing.scenarios import COMPARED, CONSTRAINED, STRICT
from vtc.cli.probing.talk import WORDS, Outcome
from vtc.proxy.launch import PORT

CLIENTS = (
    ("OpenCode", '"baseURL": "{base}/v1", "npm": "@ai-sdk/openai-compatible"; "tool_call": true for the model'),
    ("Cline, Roo Code, Kilo Code", 'provider "OpenAI Compatible", Base URL {base}/v1, model {model}'),
    ("Claude Code", "ANTHROPIC_BASE_URL={base} ANTHROPIC_MODEL={model} ANTHROPIC_DEFAULT_HAIKU_MODEL={model}"),
    ("Codex", 'base_url = "{base}/v1", wire_api = "responses", model = "{model}"'),
    ("Gemini CLI", "GOOGLE_GEMINI_BASE_URL={base}, --model {model}"),
    ("Qwen Code", "OPENAI_BASE_URL={base}/v1 OPENAI_MODEL={model}"),
    ("Continue", "apiBase: {base}/v1, provider: openai, model: {model}"),
    ("OpenAI SDKs, LiteLLM", "OPENAI_BASE_URL={base}/v1, model {model}"),
    ("goose", "OPENAI_HOST={base} GOOSE_MODEL={model}"),
    ("Zed", '"api_url": "{base}/v1", "name": "{model}"'),
    ("Open WebUI", "OPENAI_API_BASE_URL={base}/v1; Function calling: native"),
    ("Copilot in VS Code", '"url": "{base}/v1/chat/completions", "id": "{model}"'),
    ("clients of Ollama", "OLLAMA_HOST={base}, model {model}"),
)
"""What each client of README's table is told; docs/editors.md says where."""
COLOURS: dict[Outcome, str] = {
    "works": "green",
    "mended": "cyan",
    "refused": "yellow",
    "broken": "red",
    "seen": "white",
}


def command(seen: ProbeRecord, directory: Path | None, *, server: str, api: str) -> str:
    """Write the command that runs VTC as proposed; `server` and `api` are what the user had to say."""
    at = urlsplit(seen.server.url)
    parts = ["vtc", "run", f"{at.scheme}://{at.netloc}"]
    if directory:
        parts += ["--profiles", str(directory)]
    else:
        prompt = seen.way == "prompt" and seen.proposal
        parts += ["--tools", "prompt", "--dialect", seen.proposal.model.dialect] if prompt and seen.proposal else []
        parts += ["--server", server] if server else []
        parts += ["--api", api] if api else []
    return shlex.join(parts)


def settings(seen: ProbeRecord) -> dict[str, str]:
    """Tell what each client sets."""
    base = f"http://127.0.0.1:{PORT}{urlsplit(seen.server.url).path}"
    return {name: text.format(base=base, model=seen.server.model) for name, text in CLIENTS}


def as_json(seen: ProbeRecord, line: str, files: Sequence[Path]) -> dict[str, Any]:
    """Tell all of it to a program."""
    works, reason = seen.verdict()
    server, replied = seen.server, seen.tools is not None
    constrained, strict = seen.replies.get(CONSTRAINED.name), seen.replies.get(STRICT.name)
    return {
        "works": works,
        "reason": reason,
        "url": server.url,
        "api": seen.api.name if replied else None,
        "apis": list(server.apis),
        "server": server.profile.name if server.profile else None,
        "version": server.version or None,
        "model": server.model or None,
        "context": server.context or None,
        "tools": seen.tools,
        "dialect": seen.dialect or None,
        "reasoning": seen.thinking.how,
        "special_tokens": seen.tokens,
        "constrain": words.constrained(constrained) if constrained else "unknown",
        "strict": words.strict(strict) if strict else "unknown",
        "profiles": [str(file) for file in files],
        "command": line if works else None,
        "needs_profiles": seen.needs() if works and not files else [],
        "clients": settings(seen) if works else {},
        "requests": seen.asked,
        "stopped": seen.stopped or None,
        "findings": [
            {
                "question": one.question,
                "answer": one.answer,
                "outcome": one.outcome,
                "evidence": one.evidence,
                "advice": one.advice,
            }
            for one in findings(seen)
        ],
        "scenarios": [*_scenarios(seen)],
    }


def _scenarios(seen: ProbeRecord) -> Iterator[dict[str, Any]]:
    compared = {one.name for one in COMPARED}
    for heard in seen.replies.values():
        direct = "error" if heard.problem else "fail" if heard.faults_direct else "pass"
        yield {
            "name": heard.scenario.name,
            "stream": heard.scenario.stream,
            "canitoolcall": heard.scenario.name in compared,
            "direct": None if heard.prompted and heard.scenario.calls else direct,
            "outcome": heard.outcome,
            "faults": heard.faults,
            "saw": heard.saw,
            "asks": heard.scenario.asks,
        }


def show(told: Mapping[str, Any]) -> None:
    """Print for people what `as_json` tells."""
    for one in told["findings"]:
        word = f"{WORDS[one['outcome']]:<14}"
        answer = click.style(one["answer"], bold=True)
        click.echo(f"{click.style(word, fg=COLOURS[one['outcome']])}{one['question']} {answer}")
        for more in (one["evidence"], one["advice"] and f"to change it: {one['advice']}"):
            if more:
                click.echo(f"{'':14}{more}")
    click.echo()
    if told["scenarios"]:
        heads = ("scenario", "server alone", "with VTC", "what came")
        show_table(heads, [*map(_row, told["scenarios"])])
    if told["stopped"]:
        click.echo(f"Not all was asked: {told['stopped']}.")
    for file in told["profiles"]:
        click.echo(f"wrote {file}")
    if not told["works"]:
        click.secho(f"An agent will not work, as far as this shows: {told['reason']}.", fg="red", bold=True)
        return
    click.secho(f"An agent will work: {told['reason']}.", fg="green", bold=True)
    for what in told["needs_profiles"]:
        click.echo(f"Of {what} that holds with profiles only: run this again with `--write DIR`.")
    click.echo(f"\n  {told['command']}\n")
    width = max(map(len, told["clients"]))
    for name, text in told["clients"].items():
        click.echo(f"{name:<{width}}  {text}")


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{one['name']}, streamed" if one["stream"] else str(one["name"])
    return name, one["direct"] or "-", WORDS[one["outcome"]], one["saw"]
