"""What a probe found out, question by question, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from vtc.cli.probing import scenarios, words
from vtc.cli.probing.probe import ProbeRecord
from vtc.cli.probing.talk import Finding, Outcome, ProbeReply

# The one flag of a server that changes what was seen.


PARSERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "hermes": "hermes",
        "qwen3-coder": "qwen3_coder",
        "mistral": "mistral",
        "mistral-v3": "mistral",
        "llama3": "llama3_json",
        "deepseek-v3": "deepseek_v3",
        "deepseek-v3.1": "deepseek_v31",
        "deepseek-v3.2": "deepseek_v32",
        "kimi-k2": "kimi_k2",
        "glm-4.5": "glm45",
        "glm-4.7": "glm47",
        "granite": "granite",
        "internlm": "internlm",
        "jamba": "jamba",
        "minimax-m2": "minimax_m2",
        "hunyuan": "hunyuan_a13b",
        "harmony": "openai",
        "pythonic": "pythonic",
        "olmo-3": "olmo3",
        "step-3": "step3",
        "seed-oss": "seed_oss",
    },
    "sglang": {
        "hermes": "qwen",
        "qwen3-coder": "qwen3_coder",
        "mistral": "mistral",
        "mistral-v3": "mistral",
        "llama3": "llama3",
        "deepseek-v3": "deepseekv3",
        "deepseek-v3.1": "deepseekv31",
        "kimi-k2": "kimi_k2",
        "glm-4.5": "glm45",
        "glm-4.7": "glm47",
        "harmony": "gpt-oss",
        "pythonic": "pythonic",
        "minimax-m2": "minimax-m2",
        "step-3": "step3",
    },
}
"""The parser of calls by server and dialect, as `--tool-call-parser` names it."""


def parser(server: str, dialects: Iterable[str]) -> str:
    """Say which flags make a server read calls itself; empty if that is not known."""
    known = PARSERS.get(server, {})
    name = next((known[one] for one in dialects if one in known), "NAME")
    if server == "vllm":
        return f"start vLLM with `--enable-auto-tool-choice --tool-call-parser {name}`"
    if server == "sglang":
        return f"start SGLang with `--tool-call-parser {name}`"
    if server == "llama.cpp":
        return "restart llama-server with `--jinja`"
    if server == "ollama":
        return "take a model for which `ollama show` lists the capability tools"
    return ""


def reasoning(server: str) -> str:
    """Say which flag makes a server part reasoning off itself."""
    return {
        "vllm": "start vLLM with `--reasoning-parser NAME`",
        "sglang": "start SGLang with `--reasoning-parser NAME`",
        "llama.cpp": "restart llama-server with `--reasoning-format auto`",
    }.get(server, "")


def context(server: str) -> str:
    """Say how a server is given more context."""
    return {
        "ollama": "start Ollama with `OLLAMA_CONTEXT_LENGTH=32768`, or set `num_ctx` in the Modelfile",
        "llama.cpp": "restart llama-server with a larger `--ctx-size`",
        "lm-studio": "load the model with a larger context length",
    }.get(server, "give the server a larger context")


ORDER: dict[words.Tools, Outcome] = {"parsed": "works", "leaked": "mended", "ignored": "seen", "refused": "refused"}
THOUGHTS: dict[words.Thoughts, tuple[str, Outcome]] = {
    "parted": ("apart from the text", "works"),
    "raw": ("in the text, between tags", "mended"),
    "prefilled": ("in the text, the first tag opened in the prompt", "mended"),
    "none": ("none was seen", "seen"),
}
CHOICES = (scenarios.FORCED, scenarios.REQUIRED, scenarios.FORBIDDEN)


def findings(seen: ProbeRecord) -> Iterator[Finding]:
    """Tell all that was found out, in the order in which a person asks."""
    for look in LOOKS:
        yield from look(seen)


def _server(seen: ProbeRecord) -> Iterator[Finding]:
    server = seen.server
    if server.problem and not server.model:
        yield Finding("Is the server there?", "no", "broken", server.problem)
        return
    kind = server.profile.description or server.profile.name if server.profile else "not known"
    yield Finding("Which server is it?", f"{kind} {server.version}".strip(), "seen", server.how)
    spoken = ", ".join(server.apis)
    yield Finding("Which APIs does it speak?", spoken or f"that does not show; asked in {seen.api.name}", "seen")
    others = len([one for one in server.models if one != server.model])
    also = f"and {others} more, which --model names" if others else ""
    yield Finding("Which model?", server.model, "seen", also)
    if server.context:
        yield Finding("How much context?", f"{server.context:,} tokens", "seen")
    if server.can is not None:
        outcome: Outcome = "works" if "tools" in server.can else "refused"
        yield Finding("What does the server say that the model can do?", ", ".join(server.can), outcome)


def _template(seen: ProbeRecord) -> Iterator[Finding]:
    found = seen.template
    if found is None:
        return
    if found.problem:
        yield Finding("What does its chat template do?", "not known", "seen", found.problem)
        return
    yield Finding("Does its chat template take tools?", *(("yes", "works") if found.takes_tools else ("no", "refused")))
    if found.dialect:
        yield Finding("How does the template write calls?", found.dialect, "seen")
    if found.opens:
        yield Finding("Does the template open the thinking?", f"yes: {found.opens}", "seen")
    if found.refuses:
        yield Finding("What does the template refuse?", "; ".join(found.refuses), "refused")


def _tools(seen: ProbeRecord) -> Iterator[Finding]:
    heard = seen.native
    if heard is None:
        return
    if seen.tools is None:
        yield Finding("Does it take `tools`?", "no reply came", "broken", heard.problem)
        return
    usual = (*seen.base.accept, seen.base.dialect) if seen.base else ()
    flag = parser(seen.kind, [seen.dialect, *heard.dialects, *usual])
    answers = {
        "parsed": "yes, and calls come as calls",
        "leaked": f"yes, but calls come as text ({', '.join(heard.dialects)}), which VTC reads",
        "ignored": "it took them and answered with text: neither a pass nor a failure",
        "refused": "no",
    }
    wants = seen.tools == "refused" or (seen.tools == "leaked" and seen.kind in PARSERS)
    saw = f"{heard.saw}; {words.hidden(heard)}".removesuffix("; ")
    yield Finding("Does it take `tools`?", answers[seen.tools], ORDER[seen.tools], saw, flag if wants else "")
    if seen.tools == "parsed":
        faults = heard.faults_direct
        streamed = seen.replies.get(f"{scenarios.PARALLEL.name}, streamed")
        faults += [
            one for one in (streamed.faults_direct if streamed and not streamed.silent else []) if "calls" in one
        ]
        reason = heard.direct.finish_reason
        told = f"finish reason {reason}" if reason else "no finish reason"
        outcome: Outcome = "mended" if faults else "works"
        yield Finding(
            "Are ids, order and arguments of calls in order?",
            "no" if faults else "yes",
            outcome,
            "; ".join([*faults, told]),
        )


def _stream(seen: ProbeRecord) -> Iterator[Finding]:
    whole = seen.replies.get(scenarios.SINGLE.name)
    stream = seen.replies.get(f"{scenarios.SINGLE.name}, streamed")
    if whole is None or stream is None or whole.problem or stream.problem:
        return
    same = _shape(whole, direct=True) == _shape(stream, direct=True)
    mended = _shape(whole) == _shape(stream)
    outcome: Outcome = "works" if same else "mended" if mended else "broken"
    answer = "yes" if same else "through VTC" if mended else "no"
    yield Finding("Is a stream like the whole reply?", answer, outcome, "" if same else f"streamed: {stream.saw}")


def _shape(heard: ProbeReply, *, direct: bool = False) -> object:
    reply = heard.direct if direct else heard.through
    return [call.name for call in reply.message.calls], bool(reply.message.text.strip()), bool(reply.message.reasoning)


def _asked(heard: ProbeReply) -> Outcome:
    """Say what became of the question alone, wherever its thinking stands."""
    if heard.misses:
        return heard.outcome
    return "mended" if heard.scenario.calls and (heard.prompted or not heard.direct.message.calls) else "works"


def _choice(seen: ProbeRecord) -> Iterator[Finding]:
    for scenario in CHOICES:
        if heard := seen.replies.get(scenario.name):
            outcome = _asked(heard)
            answer = {"works": "yes", "mended": "through VTC", "refused": "refused"}.get(outcome, "no")
            yield Finding(f"Is it obeyed: {scenario.asks}?", answer, outcome, heard.saw)


def _schemas(seen: ProbeRecord) -> Iterator[Finding]:
    if heard := seen.replies.get(scenarios.SCHEMAS.name):
        taken: Outcome = "refused" if heard.refused else "broken" if heard.problem else "works"
        question = f"Does it take {scenarios.SCHEMAS.asks}?"
        yield Finding(question, {"works": "yes"}.get(taken, "no"), taken, heard.problem)
    if heard := seen.replies.get(scenarios.CONSTRAINED.name):
        word = words.constrained(heard)
        outcomes: dict[words.Constrained, Outcome] = {"schema": "works", "refused": "refused"}
        answer = {"schema": "yes", "ignored": "no: the schema had no effect", "refused": "refused"}.get(
            word, "not known"
        )
        yield Finding("Can it be held to a JSON Schema?", answer, outcomes.get(word, "seen"), heard.saw)


def _strict(seen: ProbeRecord) -> Iterator[Finding]:
    if heard := seen.replies.get(scenarios.STRICT.name):
        word = words.strict(heard)
        answers: dict[words.Strict, tuple[str, Outcome]] = {
            "taken": ("yes", "works"),
            "ignored": ("no: `strict` has no effect", "seen"),
            "refused": ("refused", "refused"),
            "unknown": ("not known", "seen"),
        }
        flag = "add `--set vtc_constrain=auto`: all calls of tools with parameters are held to their schemas"
        yield Finding("Are strict tools held to their schemas?", *answers[word], heard.saw, flag * (word == "taken"))


def _tokens(seen: ProbeRecord) -> Iterator[Finding]:
    if not seen.marker or seen.native is None or seen.tools is None:
        return
    question = f"Does it keep the marker {seen.marker} in the text?"
    if seen.tokens == "dropped":
        answer = "no, but with what the server's profile sets" if seen.tokens_mended else "no"
        yield Finding(question, answer, "mended" if seen.tokens_mended else "broken")
    else:
        outcome: Outcome = "works" if seen.tokens == "kept" else "seen"
        yield Finding(question, "yes" if seen.tokens == "kept" else "that did not show", outcome)


def _thinking(seen: ProbeRecord) -> Iterator[Finding]:
    if seen.tools is None:
        return
    answer, outcome = THOUGHTS[seen.thinking.how]
    name = f", as `{seen.thinking.field}`" if seen.thinking.field else ""
    flag = reasoning(seen.kind) if seen.thinking.how in ("raw", "prefilled") else ""
    yield Finding("How does reasoning come?", answer + name, outcome, seen.thinking.open, flag)


def _prompted(seen: ProbeRecord) -> Iterator[Finding]:
    for name, heard in seen.prompted.items():
        outcome = _asked(heard)
        answer = {"mended": "yes", "works": "yes", "seen": "text came: neither a pass nor a failure"}.get(outcome, "no")
        by = f" (read as {', '.join(heard.dialects)})" if heard.dialects and heard.dialects != (name,) else ""
        yield Finding(f"Does it call with the tools in the prompt, as {name}?", answer, outcome, f"{heard.saw}{by}")


def _cache(seen: ProbeRecord) -> Iterator[Finding]:
    used = [one.direct.usage for one in seen.heard() if one.direct.usage]
    most = max((one.cached for one in used), default=0)
    if used:
        answer = f"yes: up to {most:,} tokens" if most else "it tells of none"
        yield Finding("Does it keep the prompt's beginning (cache)?", answer, "works" if most else "seen")
    long = seen.replies.get(scenarios.LONG.name)
    if long is None:
        return
    question, usage = "Does it cut a long prompt without a word?", long.direct.usage
    counted = f"{usage.prompt:,} tokens were counted" if usage else ""
    if words.is_cut(long):
        yield Finding(question, "yes", "broken", f"{counted} of about 6,000", context(seen.kind))
    elif long.problem:
        yield Finding(question, "no reply" if not long.refused else "no: it refuses", "seen", long.problem)
    elif long.misses:
        yield Finding(question, "not known: it was not remembered", "seen", "; ".join([counted, long.saw]))
    else:
        yield Finding(question, "no", "works", counted)


LOOKS: tuple[Callable[[ProbeRecord], Iterator[Finding]], ...] = (
    _server,
    _template,
    _tools,
    _stream,
    _choice,
    _schemas,
    _strict,
    _tokens,
    _thinking,
    _prompted,
    _cache,
)
