"""Report the results of a probe as text and JSON: findings, the command to run, and the settings of clients."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from vtc.cli.common import show_table
from vtc.cli.probing import classification, scenarios
from vtc.cli.probing.bounded_asker import BY_USER
from vtc.cli.probing.probe import ProbeRecord
from vtc.cli.probing.talk import ProbeOutcome, ProbeReply
from vtc.profiles.agents import AgentProfile
from vtc.profiles.document import load_table
from vtc.proxy.launch import PORT


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question about a server."""

    question: str
    answer: str
    outcome: ProbeOutcome = "seen"
    evidence: str = ""
    advice: str = ""
    """The change that improves the answer; empty if none is known."""


OUTCOME_WORDS: dict[ProbeOutcome, str] = {
    "works": "works",
    "mended": "fixed by VTC",
    "refused": "rejected",
    "broken": "broken",
    "seen": "seen",
    "unasked": "not asked",
}
CLIENT_SETTINGS = (
    ("Cline, Roo Code, Kilo Code in an editor", 'provider "OpenAI Compatible", Base URL {base}/v1, model {model}'),
    ("Continue in an editor", "apiBase: {base}/v1, provider: openai, model: {model}"),
    ("OpenAI SDKs, LiteLLM", "OPENAI_BASE_URL={base}/v1 OPENAI_API_KEY={key}, model {model}"),
    ("Zed", '"api_url": "{base}/v1", "name": "{model}"'),
    ("Open WebUI", "OPENAI_API_BASE_URL={base}/v1; Function calling: native"),
    ("Copilot in VS Code", '"url": "{base}/v1/chat/completions", "id": "{model}"'),
    ("clients of Ollama", "OLLAMA_HOST={base}, model {model}"),
)
"""Settings of each client that `vtc launch` cannot start; docs/editors.md describes where to enter them."""
OUTCOME_COLOURS: dict[ProbeOutcome, str] = {
    "works": "green",
    "mended": "cyan",
    "refused": "yellow",
    "broken": "red",
    "seen": "white",
    "unasked": "white",
}
WITH_VTC_ONLY = "only with VTC"


class ServerFlags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The flags that change the behaviour of a server; empty if unknown."""

    tools: str = ""
    """How to make it parse calls itself."""
    reasoning: str = ""
    """How to make it separate reasoning from the text itself."""
    context: str = "give the server a larger context"
    """How to enlarge its context."""
    parsers: dict[str, str] = {}
    """The name of the tool parser by dialect; it replaces `{parser}`."""


class FlagTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The flags of all servers, by the names of their profiles."""

    servers: dict[str, ServerFlags]


@cache
def _load_flags() -> Mapping[str, ServerFlags]:
    return load_table(Path(__file__).with_name("flags.yaml"), FlagTable).servers


def get_flags(kind: str) -> ServerFlags:
    """Return the flags of a server by the name of its profile; empty ones if the server is unknown."""
    return _load_flags().get(kind, ServerFlags())


def format_parser_flags(flags: ServerFlags, dialects: Iterable[str]) -> str:
    """Format the advice that makes a server parse calls of the first known dialect; empty if it is unknown."""
    name = next((flags.parsers[dialect] for dialect in dialects if dialect in flags.parsers), "NAME")
    return flags.tools.format(parser=name)


TOOL_OUTCOMES: dict[classification.ToolSupport, ProbeOutcome] = {
    "parsed": "works",
    "leaked": "mended",
    "ignored": "seen",
    "refused": "refused",
}
REASONING_ANSWERS: dict[classification.ReasoningStyle, tuple[str, ProbeOutcome]] = {
    "parted": ("separate from the text", "works"),
    "raw": ("in the text, between tags", "mended"),
    "prefilled": ("in the text, the first tag opened in the prompt", "mended"),
    "none": ("no reasoning was seen", "seen"),
}
CHOICE_SCENARIOS = {
    "Does a named `tool_choice` work?": scenarios.FORCED,
    "Does `tool_choice: required` work?": scenarios.REQUIRED,
    "Does `tool_choice: none` work?": scenarios.FORBIDDEN,
}


def list_findings(record: ProbeRecord) -> Iterator[Finding]:
    """Yield all findings in the order in which a person asks."""
    for report in REPORTERS:
        yield from report(record)


def _report_server(record: ProbeRecord) -> Iterator[Finding]:
    server = record.server
    if server.problem and not server.model:
        if server.problem == BY_USER:
            yield Finding("Is the server there?", "", "unasked")
        else:
            yield Finding("Is the server there?", "no", "broken", server.problem)
        return
    kind = server.profile.description or server.profile.name if server.profile else "not known"
    yield Finding("Which server is it?", f"{kind} {server.version}".strip(), "seen", server.recognised_by)
    spoken = ", ".join(server.apis)
    yield Finding("Which APIs does it speak?", spoken or f"not known; {record.api.name} was used", "seen")
    others = len([model for model in server.models if model != server.model])
    also = f"and {others} more (choose with --model)" if others else ""
    yield Finding("Which model?", server.model, "seen", also)
    if server.context:
        yield Finding("How much context?", f"{server.context:,} tokens", "seen")
    if server.capabilities is not None:
        outcome: ProbeOutcome = "works" if "tools" in server.capabilities else "refused"
        yield Finding("Which capabilities does the server list for the model?", ", ".join(server.capabilities), outcome)


def _report_template(record: ProbeRecord) -> Iterator[Finding]:
    template = record.template_facts
    if template is None:
        return
    if template.problem:
        yield Finding("What does its chat template do?", "not known", "seen", template.problem)
        return
    yield Finding(
        "Does its chat template accept tools?", *(("yes", "works") if template.accepts_tools else ("no", "refused"))
    )
    if template.dialect:
        yield Finding("How does the template write calls?", template.dialect, "seen")
    if template.opened_tag:
        yield Finding("Does the template open the reasoning?", f"yes: {template.opened_tag}", "seen")
    if template.rejects:
        yield Finding("What does the template reject?", "; ".join(template.rejects), "refused")


def _report_tools(record: ProbeRecord) -> Iterator[Finding]:
    reply = record.native
    if reply is None:
        return
    if record.tools is None:
        yield from _report_reply("Does the model answer?", reply, _describe_missing_reply)
        return
    usual = (*record.base.accept, record.base.dialect) if record.base else ()
    flags = get_flags(record.kind)
    flag = format_parser_flags(flags, [record.dialect, *reply.dialects, *usual])
    answers = {
        "parsed": "yes, and calls arrive as native tool calls",
        "leaked": f"yes, but calls arrive as text ({', '.join(reply.dialects)}), which VTC parses",
        "ignored": "it accepted them and answered with text: neither a pass nor a failure",
        "refused": "no",
    }
    is_flag_useful = record.tools == "refused" or (record.tools == "leaked" and flags.parsers)
    evidence = f"{reply.summary}; {classification.explain_hidden_tools(reply)}".removesuffix("; ")
    yield Finding(
        "Does it accept `tools`?",
        answers[record.tools],
        TOOL_OUTCOMES[record.tools],
        evidence,
        flag if is_flag_useful else "",
    )
    if record.tools == "parsed":
        streamed = record.replies.get(scenarios.PARALLEL.as_stream().label)
        others = streamed.faults_direct if streamed and not streamed.is_silent else []
        faults = [*reply.faults_direct, *(fault for fault in others if "calls" in fault)]
        reason = reply.direct.finish_reason
        finish = f"finish reason {reason}" if reason else "no finish reason"
        outcome: ProbeOutcome = "mended" if faults else "works"
        yield Finding(
            "Are ids, order and arguments of calls in order?",
            "no" if faults else "yes",
            outcome,
            "; ".join([*faults, finish]),
        )


def _describe_missing_reply(reply: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
    return "no", "refused" if reply.is_rejected else "broken", reply.problem, ""


def _report_stream(record: ProbeRecord) -> Iterator[Finding]:
    whole = record.replies.get(scenarios.SINGLE.name)
    stream = record.replies.get(scenarios.SINGLE.as_stream().label)
    if whole is None or stream is None or whole.problem or stream.problem:
        return
    question, evidence = "Is a stream equal to the whole reply?", f"streamed: {stream.summary}"
    if _summarize_shape(whole, direct=True) == _summarize_shape(stream, direct=True):
        yield Finding(question, "yes", "works")
    elif _summarize_shape(whole) == _summarize_shape(stream):
        yield Finding(question, WITH_VTC_ONLY, "mended", evidence)
    else:
        yield Finding(question, "no", "broken", evidence)


def _summarize_shape(reply: ProbeReply, *, direct: bool = False) -> object:
    """Return the parts of a reply that do not depend on the model's words; `direct` is the server's own reply."""
    message = (reply.direct if direct else reply.via_vtc).message
    return [call.name for call in message.calls], bool(message.text.strip()), bool(message.reasoning)


def _classify_question(reply: ProbeReply) -> ProbeOutcome:
    """Return the outcome with regard to the question; leaked reasoning, which is a fault of every reply, is ignored."""
    if reply.misses:  # also if it was not sent
        return reply.outcome
    return "mended" if reply.scenario.calls and (reply.prompted or not reply.direct.message.calls) else "works"


def _report_reply(
    question: str, reply: ProbeReply | None, describe: Callable[[ProbeReply], tuple[str, ProbeOutcome, str, str]]
) -> Iterator[Finding]:
    """Yield the finding of a reply, or one that states that the question was not sent; nothing without a reply.

    `describe` returns the fields of the finding after its question: answer, outcome, evidence, advice.
    """
    if reply is None:
        return
    if reply.is_asked:
        yield Finding(question, *describe(reply))
    else:
        yield Finding(question, "", "unasked")


def _report_choice(record: ProbeRecord) -> Iterator[Finding]:
    def answer(reply: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        outcome = _classify_question(reply)
        word = {"works": "yes", "mended": WITH_VTC_ONLY, "refused": "rejected"}.get(outcome, "no")
        return word, outcome, reply.summary, ""

    for question, scenario in CHOICE_SCENARIOS.items():
        yield from _report_reply(question, record.replies.get(scenario.name), answer)


def _report_quirks(record: ProbeRecord) -> Iterator[Finding]:
    for quirk, error in record.quirks.items():
        yield Finding("What does it reject that VTC corrects?", quirk, "mended", error)


def _report_schemas(record: ProbeRecord) -> Iterator[Finding]:
    def describe_schema_reply(reply: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        outcome: ProbeOutcome = "refused" if reply.is_rejected else "broken" if reply.problem else "works"
        outcome = "mended" if outcome == "works" and reply.rejection else outcome
        word = {"works": "yes", "mended": WITH_VTC_ONLY}.get(outcome, "no")
        return word, outcome, reply.problem or reply.rejection, ""

    answers: dict[classification.SchemaSupport, tuple[str, ProbeOutcome]] = {
        "schema": ("yes", "works"),
        "ignored": ("no: the schema had no effect", "seen"),
        "refused": ("rejected", "refused"),
        "unknown": ("not known", "seen"),
    }
    yield from _report_reply(
        f"Does it accept {scenarios.SCHEMAS.asks}?", record.replies.get(scenarios.SCHEMAS.name), describe_schema_reply
    )
    yield from _report_reply(
        "Does it constrain replies to a JSON Schema?",
        record.replies.get(scenarios.CONSTRAINED.name),
        lambda reply: (*answers[classification.classify_schema(reply)], reply.summary, ""),
    )


def _report_strict(record: ProbeRecord) -> Iterator[Finding]:
    answers: dict[classification.StrictSupport, tuple[str, ProbeOutcome]] = {
        "taken": ("yes", "works"),
        "ignored": ("no: `strict` has no effect", "seen"),
        "refused": ("rejected", "refused"),
        "unknown": ("not known", "seen"),
    }
    flag = "add `--set vtc_constrain=auto`: VTC then constrains all calls of tools with parameters to their schemas"

    def describe_strict_reply(reply: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        support = classification.classify_strict(reply)
        answer, outcome = answers[support]
        return answer, outcome, reply.summary, flag if support == "taken" else ""

    strict = record.replies.get(scenarios.STRICT.name)
    yield from _report_reply("Does it constrain strict tools to their schemas?", strict, describe_strict_reply)


def _report_special_tokens(record: ProbeRecord) -> Iterator[Finding]:
    if not record.tokens.marker or record.native is None or record.tools is None:
        return
    question = f"Does it keep the marker {record.tokens.marker} in the text?"
    if record.tokens.support == "dropped":
        answer = "no, but with the fields that the server's profile sets" if record.tokens.repaired else "no"
        yield Finding(question, answer, "mended" if record.tokens.repaired else "broken")
    else:
        outcome: ProbeOutcome = "works" if record.tokens.support == "kept" else "seen"
        yield Finding(question, "yes" if record.tokens.support == "kept" else "not known", outcome)


def _report_reasoning(record: ProbeRecord) -> Iterator[Finding]:
    if record.tools is None:
        return
    answer, outcome = REASONING_ANSWERS[record.reasoning.style]
    name = f", as `{record.reasoning.field}`" if record.reasoning.field else ""
    flag = get_flags(record.kind).reasoning if record.reasoning.style in ("raw", "prefilled") else ""
    yield Finding("How does reasoning arrive?", answer + name, outcome, record.reasoning.open, flag)


def _report_prompt_mode(record: ProbeRecord) -> Iterator[Finding]:
    words_of: dict[ProbeOutcome, str] = {
        "mended": "yes",
        "works": "yes",
        "seen": "it answered with text: neither a pass nor a failure",
    }

    def answer(reply: ProbeReply) -> tuple[str, ProbeOutcome, str, str]:
        by = f" (read as {', '.join(reply.dialects)})" if reply.dialects and reply.dialects != (name,) else ""
        return words_of.get(_classify_question(reply), "no"), _classify_question(reply), f"{reply.summary}{by}", ""

    for name, reply in record.prompted.items():
        yield from _report_reply(f"Does it call with the tools in the prompt, as {name}?", reply, answer)


def _report_prompt_limits(record: ProbeRecord) -> Iterator[Finding]:
    used = [usage for reply in record.list_replies() if (usage := reply.direct.usage)]
    cached = max((usage.cached for usage in used), default=0)
    if used:
        answer = f"yes: up to {cached:,} tokens" if cached else "it reports none"
        yield Finding("Does it cache the beginning of the prompt?", answer, "works" if cached else "seen")
    yield from _report_reply(
        "Does it silently truncate a long prompt?",
        record.replies.get(scenarios.LONG.name),
        lambda reply: _describe_truncation(reply, get_flags(record.kind).context),
    )


def _describe_truncation(reply: ProbeReply, flag: str) -> tuple[str, ProbeOutcome, str, str]:
    usage = reply.direct.usage
    counted = f"{usage.prompt:,} tokens were counted" if usage else ""
    if classification.is_truncated(reply):
        return "yes", "broken", f"{counted} of about 6,000", flag
    if reply.problem:
        return "no: it rejects it" if reply.is_rejected else "no reply", "seen", reply.problem, ""
    if reply.misses:
        return "not known: the model did not remember it", "seen", "; ".join(filter(None, [counted, reply.summary])), ""
    return "no", "works", counted, ""


REPORTERS: tuple[Callable[[ProbeRecord], Iterator[Finding]], ...] = (
    _report_server,
    _report_template,
    _report_tools,
    _report_quirks,
    _report_stream,
    _report_choice,
    _report_schemas,
    _report_strict,
    _report_special_tokens,
    _report_reasoning,
    _report_prompt_mode,
    _report_prompt_limits,
)


def build_options(
    record: ProbeRecord, folders: Sequence[Path], *, server: str, api: str, key_env: str, is_written: bool
) -> list[str]:
    """Build the options with which VTC runs as proposed.

    `folders` contain profiles. `server` and `api` are the user's choices; written profiles (`is_written`) include them.
    """
    common = [part for folder in folders for part in ("--profiles", str(folder))]
    common += ["--key-env", key_env] if key_env else []
    if is_written:
        return common
    if not api and (key_env or urlsplit(record.server.url).path):  # VTC detects APIs at the root only
        api = ",".join(record.server.apis) or record.api.name
    prompt = record.tool_mode == "prompt" and record.proposal
    parts = ["--tools", "prompt", "--dialect", record.proposal.model.dialect] if prompt and record.proposal else []
    parts += ["--server", server] if server else []
    parts += ["--api", api] if api else []
    return [*common, *parts]


def format_command(record: ProbeRecord, proposed: Sequence[str]) -> str:
    """Format the command that runs VTC with the proposed options."""
    url = urlsplit(record.server.url)
    return shlex.join(["vtc", "run", f"{url.scheme}://{url.netloc}", *proposed])


def format_clients(
    record: ProbeRecord, proposed: Sequence[str], agents: Iterable[AgentProfile], key_env: str
) -> dict[str, str]:
    """Return the command that starts each agent, and the settings of each other client, by name."""
    base, model = f"http://127.0.0.1:{PORT}{urlsplit(record.server.url).path}", record.server.model
    more = [*proposed, "--model", model]
    launched = {agent.title: shlex.join(["vtc", "launch", agent.name, record.server.url, *more]) for agent in agents}
    key = f'"${key_env}"' if key_env else "any"
    return launched | {name: text.format(base=base, model=model, key=key) for name, text in CLIENT_SETTINGS}


def build_json(record: ProbeRecord, line: str, files: Sequence[Path], settings: Mapping[str, str]) -> dict[str, Any]:
    """Build the JSON report for programs."""
    works, reason = record.decide_verdict()
    server, has_replied = record.server, record.tools is not None
    constrained, strict = record.replies.get(scenarios.CONSTRAINED.name), record.replies.get(scenarios.STRICT.name)
    return {
        "works": works,
        "reason": reason,
        "url": server.url,
        "api": record.api.name if has_replied else None,
        "apis": list(server.apis),
        "server": server.profile.name if server.profile else None,
        "version": server.version or None,
        "model": server.model or None,
        "context": server.context or None,
        "tools": record.tools,
        "dialect": record.dialect or None,
        "reasoning": record.reasoning.style,
        "special_tokens": record.tokens.support,
        "constrain": classification.classify_schema(constrained) if constrained else "unknown",
        "strict": classification.classify_strict(strict) if strict else "unknown",
        "taught": [*record.quirks],
        "profiles": [str(file) for file in files],
        "command": line if works else None,
        "needs_profiles": record.list_profile_needs() if works and not files else [],
        "clients": settings if works else {},
        "requests": record.request_count,
        "stopped": record.stopped or None,
        "findings": [*map(asdict, list_findings(record))],
        "scenarios": [*_list_scenarios(record)],
    }


def _list_scenarios(record: ProbeRecord) -> Iterator[dict[str, Any]]:
    for reply in record.replies.values():
        direct = "error" if reply.problem else "fail" if reply.faults_direct else "pass"
        is_direct = reply.is_asked and not (reply.prompted and reply.scenario.calls)
        yield {
            "name": reply.scenario.name,
            "stream": reply.scenario.stream,
            "canitoolcall": reply.scenario.compared,
            "direct": direct if is_direct else None,
            "outcome": reply.outcome,
            "faults": reply.faults if reply.is_asked else [],
            "saw": reply.summary if reply.is_asked else "",
            "asks": reply.scenario.asks,
        }


def print_report(report: Mapping[str, Any]) -> None:
    """Print the report of `build_json` for people."""
    for finding in report["findings"]:
        word = f"{OUTCOME_WORDS[finding['outcome']]:<14}"
        answer = click.style(finding["answer"], bold=True)
        click.echo(f"{click.style(word, fg=OUTCOME_COLOURS[finding['outcome']])}{finding['question']} {answer}")
        for detail in (finding["evidence"], finding["advice"] and f"{_introduce_advice(finding)}: {finding['advice']}"):
            if detail:
                click.echo(f"{'':14}{detail}")
    click.echo()
    if report["scenarios"]:
        heads = ("scenario", "server alone", "with VTC", "reply")
        show_table(heads, [*map(_format_row, report["scenarios"])])
    if report["stopped"] and report["stopped"] != report["reason"]:
        click.echo(f"The probe ended early: {report['stopped']}.")
    for file in report["profiles"]:
        click.echo(f"wrote {file}")
    if not report["works"]:
        reason = report["reason"]
        end = "" if reason.endswith((".", "?", "!")) else "."
        verdict = "An agent will not work, as far as this shows"
        if reason == BY_USER:
            verdict = "It is not known whether an agent will work"
        click.secho(f"{verdict}: {reason}{end}", fg="red", bold=True)
        return
    limitation = ", as far as this shows" if report["stopped"] else ""
    click.secho(f"An agent will work{limitation}: {report['reason']}.", fg="green", bold=True)
    for need in report["needs_profiles"]:
        click.echo(f"For {need}, profiles are required: run this again with `--write DIR`.")
    click.echo(f"\n  {report['command']}\n")
    width = max(map(len, report["clients"]))
    for name, text in report["clients"].items():
        click.echo(f"{name:<{width}}  {text}")


def _introduce_advice(finding: Mapping[str, Any]) -> str:
    return "to use it" if finding["outcome"] == "works" else "to change it"


def _format_row(scenario: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{scenario['name']}, streamed" if scenario["stream"] else str(scenario["name"])
    return name, scenario["direct"] or "-", OUTCOME_WORDS[scenario["outcome"]], scenario["saw"]
