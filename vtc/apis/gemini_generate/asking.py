"""Requests of Gemini's API that stand for those of another, and what the parts of its own mean to others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import media
from vtc.apis.asking import placed
from vtc.apis.base import FULL, Json
from vtc.apis.gemini_generate.parts import call_part, declaration, result_part
from vtc.events import Answer, Asked, Failure, Media, Message, Opaque, Seal

_CONFIG = "generationConfig"
LIMITS: Mapping[str, Sequence[str]] = {
    "max_tokens": (f"{_CONFIG}.maxOutputTokens",),
    "stop": (f"{_CONFIG}.stopSequences",),
    "temperature": (f"{_CONFIG}.temperature",),
    "top_p": (f"{_CONFIG}.topP",),
    "top_k": (f"{_CONFIG}.topK",),
    "seed": (f"{_CONFIG}.seed",),
    "presence_penalty": (f"{_CONFIG}.presencePenalty",),
    "frequency_penalty": (f"{_CONFIG}.frequencyPenalty",),
}
CARRIED: Sequence[str] = (
    *("model", "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "labels"),
    *(f"{_CONFIG}.{one}" for one in ("thinkingConfig", "responseMimeType", "responseSchema", "responseJsonSchema")),
    *(f"{_CONFIG}.{one}" for one in ("candidateCount", "responseModalities")),
)
BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""Tokens to think with, by the words that other APIs have."""
_LEVELS = {"xhigh": "high", "max": "high"}
"""Words that this API does not have."""
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def ask(asked: Asked) -> Json:
    """Write a request; its model stands in the path."""
    opening, *rest = asked.messages if asked.messages[:1] else [Message("user")]
    is_prompt = opening.role == "system"
    fields: dict[str, Any] = {"contents": _contents(rest if is_prompt else asked.messages)}
    if is_prompt and opening.text:
        fields["systemInstruction"] = {"parts": [{"text": opening.text}]}
    if asked.tools:
        fields["tools"] = [{"functionDeclarations": [*map(declaration, asked.tools)]}]
        mode = {"none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
        one_tool = {"mode": "ANY", "allowedFunctionNames": [asked.choice]}
        if asked.choice != "auto":
            fields["toolConfig"] = {"functionCallingConfig": mode.get(asked.choice, one_tool)}
        elif any(one.strict for one in asked.tools):
            fields["toolConfig"] = {"functionCallingConfig": {"mode": "VALIDATED"}}
    config: dict[str, Any] = placed(asked.limits, LIMITS).get(_CONFIG, {})
    if asked.effort is not None:
        config["thinkingConfig"] = _thinking(asked.effort)
    if asked.answer:
        schema = {"responseJsonSchema": asked.answer.schema} if asked.answer.schema else {}
        config |= {"responseMimeType": "application/json", **schema}
    return {**fields, _CONFIG: config} if config else fields


def _thinking(effort: str) -> Json:
    if effort == "none":
        return {"thinkingBudget": 0}
    level = _LEVELS.get(effort, effort)
    return {"includeThoughts": True, "thinkingBudget": BUDGETS.get(level, -1)}


def _contents(messages: Sequence[Message]) -> list[Json]:
    """Write messages; results, and what the user says after them, are one entry."""
    entries: list[dict[str, Any]] = []
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        if not entries or entries[-1]["role"] != role:
            entries.append({"role": role, "parts": []})
        entries[-1]["parts"] += _parts(message)
    return [entry for entry in entries if entry["parts"]]


def _parts(message: Message) -> list[Json]:
    """Write the parts of a message; what was sealed of its thoughts stands with the first call."""
    said = [part for one in message.content for part in _parts_of(one)]
    if message.role == "tool":
        text = "\n".join(part["text"] for part in said if "text" in part)
        return [result_part(message, text), *(part for part in said if "text" not in part)]
    thoughts = [{"text": message.reasoning, "thought": True}] if message.reasoning else []
    said = [*thoughts, *said]
    calls = [call_part(call) for call in message.calls]
    seals = [one.thought.encrypted for one in message.content if isinstance(one, Opaque) and one.thought]
    seals += [message.seal.encrypted] if message.seal and message.seal.encrypted else []
    if (seal := "".join(seals[-1:])) and calls:
        calls[0] = {**calls[0], "thoughtSignature": seal}
    elif seal:
        said.append({"text": "", "thoughtSignature": seal})
    return [*said, *calls]


def _parts_of(part: str | Opaque) -> Iterator[dict[str, Any]]:
    if isinstance(part, str):
        if part:
            yield {"text": part}
    elif part.media and part.media.data:
        yield {"inlineData": {"mimeType": part.media.media_type, "data": part.media.data}}
    elif part.media:
        yield {"fileData": {"mimeType": part.media.media_type, "fileUri": part.media.url}}


def meaning(part: Any) -> str | Media | Seal | None:
    """Tell what a part is."""
    match part:
        case str():
            return part
        case {"thoughtSignature": str(value)}:
            return Seal(value)
        case {"thought": True}:
            return None
        case {"inlineData": {"mimeType": str(type_), "data": str(data)}} if kind_of := _kind(type_):
            return Media("image" if kind_of == "image" else "document", type_, data)
        case {"fileData": {"fileUri": str(url), **rest}} if url.startswith(("http:", "https:")):
            kind = _kind(str(rest.get("mimeType") or ""))
            return media.from_url("document" if kind == "document" else "image", url)
        case {"text": str(text)}:
            return text
    return None


def _kind(media_type: str) -> str:
    return "image" if media_type.startswith("image/") else "document" if media_type == "application/pdf" else ""


def kind(part: Any) -> str:
    """Name a part that cannot be told; what was thought before is left out without a word."""
    if not isinstance(part, Mapping) or part.get("thought") or "thoughtSignature" in part:
        return ""
    return next((key for key in part if key not in ("videoMetadata", "mediaResolution")), "part")


def effort(config: Mapping[str, Any]) -> str | None:
    """Tell how much is to be thought, as `Asked.effort`."""
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    if isinstance(level, str):
        return level.lower()
    if isinstance(budget, int) and budget >= 0:
        return next((word for word, most in BUDGETS.items() if 0 < budget <= most), "high") if budget else "none"
    return "auto" if budget == -1 or config.get("includeThoughts") is True else None


def answer(config: Mapping[str, Any], schema: Any) -> Answer | None:
    """Read the form that the answer must have; `schema` is one of JSON Schema, or None."""
    if config.get("responseMimeType") != "application/json":
        return None
    return Answer(schema if isinstance(schema, Mapping) else None)


def error(failure: Failure, status: int) -> Json:
    """Write an error, by its status."""
    known = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    code = 400 if failure.kind == FULL else 500 if status == 200 else status
    return {"error": {"code": code, "message": failure.message, "status": "INTERNAL" if status == 200 else known}}
