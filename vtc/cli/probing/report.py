"""Report what a probe found out, question by question, with the command and clients' settings: as text and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from vtc.cli.common import show_table
from vtc.cli.probing import scenarios, words
from vtc.cli.probing.probe import ProbeRecord
from vtc.cli.probing.talk import ProbeOutcome, ProbeReply
from vtc.cli.probing.template import BY_USER
from vtc.profiles.agents import AgentProfile
from vtc.profiles.document import table
from vtc.proxy.launch import PORT


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question about a server."""

    question: str
    answer: str
    outcome: ProbeOutcome = "seen"
    evidence: str = ""
    advice: str = ""
    """The one thing to change, if there is one."""


WORDS: dict[ProbeOutcome, str] = {
    "works": "works",
    "mended": "mended by VTC",
    "refused": "refused",
    "broken": "broken",
    "seen": "seen",
    "unasked": "not asked",
}
CLIENTS = (
    ("Cline, Roo Code, Kilo Code in an editor", 'provider "OpenAI Compatible", Base URL {base}/v1, model {model}'),
    ("Continue in an editor", "apiBase: {base}/v1, provider: openai, model: {model}"),
    ("OpenAI SDKs, LiteLLM", "OPENAI_BASE_URL={base}/v1 OPENAI_API_KEY=any, model {model}"),
    ("Zed", '"api_url": "{base}/v1", "name": "{model}"'),
    ("Open WebUI", "OPENAI_API_BASE_URL={base}/v1; Function calling: native"),
    ("Copilot in VS Code", '"url": "{base}/v1/chat/completions", "id": "{model}"'),
    ("clients of Ollama", "OLLAMA_HOST={base}, model {model}"),
)
"""What each client is told that no command of ours starts; docs/editors.md says where."""
COLOURS: dict[ProbeOutcome, str] = {
    "works": "green",
    "mended": "cyan",
    "refused": "yellow",
    "broken": "red",
    "seen": "white",
    "unasked": "white",
}
THROUGH = "not by itself; with VTC yes"


class ServerFlags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The flags that change a server; empty where they are not known."""

    tools: str = ""
    """So that it reads calls itself."""
    reasoning: str = ""
    """So that it parts reasoning off itself."""
    context: str = "give the server a larger context"
    """So that more fits into a conversation."""
    parsers: dict[str, str] = {}
    """What reads calls, by their dialect; stands for `{parser}`."""


class FlagTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The flags of all servers, by the names of their profiles."""

    servers: dict[str, ServerFlags]


@cache
def _flags() -> Mapping[str, ServerFlags]:
    return table(Path(__file__).with_name("flags.yaml"), FlagTable).servers


def flags_of(kind: str) -> ServerFlags:
    """Find the flags of a server by the name of its profile; none if it is not known."""
    return _flags().get(kind, ServerFlags())


def parser(flags: ServerFlags, dialects: Iterable[str]) -> str:
    """Say which flags make a server read calls itself; empty if that is not known."""
    name = next((flags.parsers[dialect] for dialect in dialects if dialect in flags.parsers), "NAME")
    return flags.tools.format(parser=name)


ORDER: dict[words.Tools, ProbeOutcome] = {
    "parsed": "works",
    "leaked": "mended",
    "ignored": "seen",
    "refused": "refused",
}
THOUGHTS: dict[words.ThinkingStyle, tuple[str, ProbeOutcome]] = {
    "parted": ("apart from the text", "works"),
    "raw": ("in the text, between tags", "mended"),
    "prefilled": ("in the text, the first tag opened in the prompt", "mended"),
    "none": ("none was seen", "seen"),
}
CHOICES = {
    "Does a named `tool_choice` work?": scenarios.FORCED,
    "Does `tool_choice: required` work?": scenarios.REQUIRED,
    "Does `tool_choice: none` work?": scenarios.FORBIDDEN,
}


def findings(seen: ProbeRecord) -> Iterator[Finding]:
    """Tell all that was found out, in the order in which a person asks."""
    for look in LOOKS:
        yield from look(seen)


def _server(seen: ProbeRecord) -> Iterator[Finding]:
    server = seen.server
    if server.problem and not server.model:
        is_asked = server.problem != BY_USER
        yield Finding("Is the server there?", *(("no", "broken", server.problem) if is_asked else ("", "unasked")))
        return
    kind = server.profile.description or server.profile.name if server.profile else "not known"
    yield Finding("Which server is it?", f"{kind} {server.version}".strip(), "seen", server.how)
    spoken = ", ".join(server.apis)
    yield Finding("Which APIs does it speak?", spoken or f"not known; {seen.api.name} was used", "seen")
    others = len([model for model in server.models if model != server.model])
    also = f"and {others} more, which --model names" if others else ""
    yield Finding("Which model?", server.model, "seen", also)
    if server.context:
        yield Finding("How much context?", f"{server.context:,} tokens", "seen")
    if server.can is not None:
        outcome: ProbeOutcome = "works" if "tools" in server.can else "refused"
        yield Finding("What does the server say that the model can do?", ", ".join(server.can), outcome)


def _template(seen: ProbeRecord) -> Iterator[Finding]:
    template = seen.template
    if template is None:
        return
    if template.problem:
        yield Finding("What does its chat template do?", "not known", "seen", template.problem)
        return
    yield Finding(
        "Does its chat template take tools?", *(("yes", "works") if template.takes_tools else ("no", "refused"))
    )
    if template.dialect:
        yield Finding("How does the template write calls?", template.dialect, "seen")
    if template.opens:
        yield Finding("Does the template open the thinking?", f"yes: {template.opens}", "seen")
    if template.refuses:
        yield Finding("What does the template refuse?", "; ".join(template.refuses), "refused")


def _tools(seen: ProbeRecord) -> Iterator[Finding]:
    heard = seen.native
    if heard is None:
        return
    if seen.tools is None:
        yield from _report_reply("Does the model answer?", heard, _no_reply)
        return
    usual = (*seen.base.accept, seen.base.dialect) if seen.base else ()
    flags = flags_of(seen.kind)
    flag = parser(flags, [seen.dialect, *heard.dialects, *usual])
    answers = {
        "parsed": "yes, and calls come as calls",
        "leaked": f"yes, but calls come as text ({', '.join(heard.dialects)}), which VTC reads",
        "ignored": "it took them and answered with text: neither a pass nor a failure",
        "refused": "no",
    }
    wants = seen.tools == "refused" or (seen.tools == "leaked" and flags.parsers)
    saw = f"{heard.saw}; {words.hidden(heard)}".removesuffix("; ")
    yield Finding("Does it take `tools`?", answers[seen.tools], ORDER[seen.tools], saw, flag if wants else "")
    if seen.tools == "parsed":
        streamed = seen.replies.get(scenarios.PARALLEL.as_stream().label)
        others = streamed.faults_direct if streamed and not streamed.silent else []
        faults = [*heard.faults_direct, *(fault for fault in others if "calls" in fault)]
        reason = heard.direct.finish_reason
        finish = f"finish reason {reason}" if reason else "no finish reason"
        outcome: ProbeOutcome = "mended" if faults else "works"
        yield Finding(
            "Are ids, order and arguments of calls in order?",
            "no" if faults else "yes",
            outcome,
            "; ".join([*faults, finish]),
        )


def _no_reply(heard: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
    return "no", "refused" if heard.refused else "broken", heard.problem, ""


def _stream(seen: ProbeRecord) -> Iterator[Finding]:
    whole = seen.replies.get(scenarios.SINGLE.name)
    stream = seen.replies.get(scenarios.SINGLE.as_stream().label)
    if whole is None or stream is None or whole.problem or stream.problem:
        return
    same = _shape(whole, direct=True) == _shape(stream, direct=True)
    mended = _shape(whole) == _shape(stream)
    outcome: ProbeOutcome = "works" if same else "mended" if mended else "broken"
    answer = "yes" if same else THROUGH if mended else "no"
    yield Finding("Is a stream like the whole reply?", answer, outcome, "" if same else f"streamed: {stream.saw}")


def _shape(heard: ProbeReply, *, direct: bool = False) -> object:
    reply = heard.direct if direct else heard.through
    return [call.name for call in reply.message.calls], bool(reply.message.text.strip()), bool(reply.message.reasoning)


def _classify_question(heard: ProbeReply) -> ProbeOutcome:
    """Say what became of the question alone, wherever its thinking stands."""
    if heard.misses:  # also where no more was asked
        return heard.outcome
    return "mended" if heard.scenario.calls and (heard.prompted or not heard.direct.message.calls) else "works"


def _report_reply(
    question: str, heard: ProbeReply | None, answer: Callable[[ProbeReply], tuple[str, ProbeOutcome, str, str]]
) -> Iterator[Finding]:
    """Tell what the reply to a question shows, or that it was not asked any more; nothing if it never is here."""
    if heard:
        yield Finding(question, *answer(heard)) if heard.asked else Finding(question, "", "unasked")


def _choice(seen: ProbeRecord) -> Iterator[Finding]:
    def answer(heard: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        outcome = _classify_question(heard)
        word = {"works": "yes", "mended": THROUGH, "refused": "refused"}.get(outcome, "no")
        return word, outcome, heard.saw, ""

    for question, scenario in CHOICES.items():
        yield from _report_reply(question, seen.replies.get(scenario.name), answer)


def _refusals(seen: ProbeRecord) -> Iterator[Finding]:
    for lesson, error in seen.taught.items():
        yield Finding("What does it refuse that VTC changes?", lesson, "mended", error)


def _schemas(seen: ProbeRecord) -> Iterator[Finding]:
    def describe_schema_reply(heard: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        outcome: ProbeOutcome = "refused" if heard.refused else "broken" if heard.problem else "works"
        outcome = "mended" if outcome == "works" and heard.refusal else outcome
        word = {"works": "yes", "mended": THROUGH}.get(outcome, "no")
        return word, outcome, heard.problem or heard.refusal, ""

    answers: dict[words.Constrained, tuple[str, ProbeOutcome]] = {
        "schema": ("yes", "works"),
        "ignored": ("no: the schema had no effect", "seen"),
        "refused": ("refused", "refused"),
        "unknown": ("not known", "seen"),
    }
    yield from _report_reply(
        f"Does it take {scenarios.SCHEMAS.asks}?", seen.replies.get(scenarios.SCHEMAS.name), describe_schema_reply
    )
    yield from _report_reply(
        "Can it be held to a JSON Schema?",
        seen.replies.get(scenarios.CONSTRAINED.name),
        lambda heard: (*answers[words.check_constraint(heard)], heard.saw, ""),
    )


def _strict(seen: ProbeRecord) -> Iterator[Finding]:
    answers: dict[words.Strict, tuple[str, ProbeOutcome]] = {
        "taken": ("yes", "works"),
        "ignored": ("no: `strict` has no effect", "seen"),
        "refused": ("refused", "refused"),
        "unknown": ("not known", "seen"),
    }
    flag = "add `--set vtc_constrain=auto`: all calls of tools with parameters are held to their schemas"
    yield from _report_reply(
        "Are strict tools held to their schemas?",
        seen.replies.get(scenarios.STRICT.name),
        lambda heard: (*answers[words.strict(heard)], heard.saw, flag * (words.strict(heard) == "taken")),
    )


def _tokens(seen: ProbeRecord) -> Iterator[Finding]:
    if not seen.tokens.marker or seen.native is None or seen.tools is None:
        return
    question = f"Does it keep the marker {seen.tokens.marker} in the text?"
    if seen.tokens.fate == "dropped":
        answer = "no, but with what the server's profile sets" if seen.tokens.mended else "no"
        yield Finding(question, answer, "mended" if seen.tokens.mended else "broken")
    else:
        outcome: ProbeOutcome = "works" if seen.tokens.fate == "kept" else "seen"
        yield Finding(question, "yes" if seen.tokens.fate == "kept" else "not known", outcome)


def _thinking(seen: ProbeRecord) -> Iterator[Finding]:
    if seen.tools is None:
        return
    answer, outcome = THOUGHTS[seen.thinking.how]
    name = f", as `{seen.thinking.field}`" if seen.thinking.field else ""
    flag = flags_of(seen.kind).reasoning if seen.thinking.how in ("raw", "prefilled") else ""
    yield Finding("How does reasoning come?", answer + name, outcome, seen.thinking.open, flag)


def _report_prompt_mode(seen: ProbeRecord) -> Iterator[Finding]:
    words_of: dict[ProbeOutcome, str] = {
        "mended": "yes",
        "works": "yes",
        "seen": "text came: neither a pass nor a failure",
    }

    def answer(heard: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        by = f" (read as {', '.join(heard.dialects)})" if heard.dialects and heard.dialects != (name,) else ""
        return words_of.get(_classify_question(heard), "no"), _classify_question(heard), f"{heard.saw}{by}", ""

    for name, reply in seen.prompted.items():
        yield from _report_reply(f"Does it call with the tools in the prompt, as {name}?", reply, answer)


def _cache(seen: ProbeRecord) -> Iterator[Finding]:
    used = [usage for reply in seen.list_replies() if (usage := reply.direct.usage)]
    most = max((usage.cached for usage in used), default=0)
    if used:
        answer = f"yes: up to {most:,} tokens" if most else "it tells of none"
        yield Finding("Does it keep the prompt's beginning (cache)?", answer, "works" if most else "seen")
    yield from _report_reply(
        "Does it cut a long prompt without a word?",
        seen.replies.get(scenarios.LONG.name),
        lambda heard: _describe_truncation(heard, flags_of(seen.kind).context),
    )


def _describe_truncation(heard: ProbeReply, flag: str) -> tuple[str, ProbeOutcome, str, str]:
    usage = heard.direct.usage
    counted = f"{usage.prompt:,} tokens were counted" if usage else ""
    if words.is_cut(heard):
        return "yes", "broken", f"{counted} of about 6,000", flag
    if heard.problem:
        return "no: it refuses" if heard.refused else "no reply", "seen", heard.problem, ""
    if heard.misses:
        return "not known: it was not remembered", "seen", "; ".join(filter(None, [counted, heard.saw])), ""
    return "no", "works", counted, ""


LOOKS: tuple[Callable[[ProbeRecord], Iterator[Finding]], ...] = (
    _server,
    _template,
    _tools,
    _refusals,
    _stream,
    _choice,
    _schemas,
    _strict,
    _tokens,
    _thinking,
    _report_prompt_mode,
    _cache,
)


# For people and as JSON.


def options(seen: ProbeRecord, folders: Sequence[Path], *, server: str, api: str, is_written: bool) -> list[str]:
    """Write the options by which VTC runs as proposed, given folders of profiles.

    `server` and `api` are what the user had to say; the profiles say all of it if they were written.
    """
    profiles = [part for folder in folders for part in ("--profiles", str(folder))]
    if is_written:
        return profiles
    if not api and urlsplit(seen.server.url).path:  # VTC itself asks servers at their roots
        api = ",".join(seen.server.apis) or seen.api.name
    prompt = seen.way == "prompt" and seen.proposal
    parts = ["--tools", "prompt", "--dialect", seen.proposal.model.dialect] if prompt and seen.proposal else []
    parts += ["--server", server] if server else []
    parts += ["--api", api] if api else []
    return [*profiles, *parts]


def command(seen: ProbeRecord, proposed: Sequence[str]) -> str:
    """Write the command that runs VTC with the options that are proposed."""
    at = urlsplit(seen.server.url)
    return shlex.join(["vtc", "run", f"{at.scheme}://{at.netloc}", *proposed])


def clients(seen: ProbeRecord, proposed: Sequence[str], agents: Iterable[AgentProfile], key_env: str) -> dict[str, str]:
    """Tell how each agent is started, and what each other client sets."""
    base, model = f"http://127.0.0.1:{PORT}{urlsplit(seen.server.url).path}", seen.server.model
    more = [*proposed, "--model", model, *(["--key-env", key_env] if key_env else [])]
    launched = {agent.title: shlex.join(["vtc", "launch", agent.name, seen.server.url, *more]) for agent in agents}
    return launched | {name: text.format(base=base, model=model) for name, text in CLIENTS}


def as_json(seen: ProbeRecord, line: str, files: Sequence[Path], settings: Mapping[str, str]) -> dict[str, Any]:
    """Tell all of it to a program."""
    works, reason = seen.verdict()
    server, replied = seen.server, seen.tools is not None
    constrained, strict = seen.replies.get(scenarios.CONSTRAINED.name), seen.replies.get(scenarios.STRICT.name)
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
        "special_tokens": seen.tokens.fate,
        "constrain": words.check_constraint(constrained) if constrained else "unknown",
        "strict": words.strict(strict) if strict else "unknown",
        "taught": [*seen.taught],
        "profiles": [str(file) for file in files],
        "command": line if works else None,
        "needs_profiles": seen.needs() if works and not files else [],
        "clients": settings if works else {},
        "requests": seen.asked,
        "stopped": seen.stopped or None,
        "findings": [
            {
                "question": finding.question,
                "answer": finding.answer,
                "outcome": finding.outcome,
                "evidence": finding.evidence,
                "advice": finding.advice,
            }
            for finding in findings(seen)
        ],
        "scenarios": [*_scenarios(seen)],
    }


def _scenarios(seen: ProbeRecord) -> Iterator[dict[str, Any]]:
    for heard in seen.replies.values():
        direct = "error" if heard.problem else "fail" if heard.faults_direct else "pass"
        is_direct = heard.asked and not (heard.prompted and heard.scenario.calls)
        yield {
            "name": heard.scenario.name,
            "stream": heard.scenario.stream,
            "canitoolcall": heard.scenario.compared,
            "direct": direct if is_direct else None,
            "outcome": heard.outcome,
            "faults": heard.faults if heard.asked else [],
            "saw": heard.saw if heard.asked else "",
            "asks": heard.scenario.asks,
        }


def show(record: Mapping[str, Any]) -> None:
    """Print for people what `as_json` tells."""
    for finding in record["findings"]:
        word = f"{WORDS[finding['outcome']]:<14}"
        answer = click.style(finding["answer"], bold=True)
        click.echo(f"{click.style(word, fg=COLOURS[finding['outcome']])}{finding['question']} {answer}")
        for more in (finding["evidence"], finding["advice"] and f"{_advises(finding)}: {finding['advice']}"):
            if more:
                click.echo(f"{'':14}{more}")
    click.echo()
    if record["scenarios"]:
        heads = ("scenario", "server alone", "with VTC", "what came")
        show_table(heads, [*map(_row, record["scenarios"])])
    if record["stopped"] and record["stopped"] != record["reason"]:
        click.echo(f"Not all was asked: {record['stopped']}.")
    for file in record["profiles"]:
        click.echo(f"wrote {file}")
    if not record["works"]:
        reason = record["reason"]
        end = "" if reason.endswith((".", "?", "!")) else "."
        head = (
            "It is not known whether an agent will work"
            if reason == BY_USER
            else "An agent will not work, as far as this shows"
        )
        click.secho(f"{head}: {reason}{end}", fg="red", bold=True)
        return
    seen = ", as far as this shows" if record["stopped"] else ""
    click.secho(f"An agent will work{seen}: {record['reason']}.", fg="green", bold=True)
    for need in record["needs_profiles"]:
        click.echo(f"Of {need} that holds with profiles only: run this again with `--write DIR`.")
    click.echo(f"\n  {record['command']}\n")
    width = max(map(len, record["clients"]))
    for name, text in record["clients"].items():
        click.echo(f"{name:<{width}}  {text}")


def _advises(finding: Mapping[str, Any]) -> str:
    return "to use it" if finding["outcome"] == "works" else "to change it"


def _row(scenario: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{scenario['name']}, streamed" if scenario["stream"] else str(scenario["name"])
    return name, scenario["direct"] or "-", WORDS[scenario["outcome"]], scenario["saw"]
