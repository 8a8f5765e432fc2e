"""Requests of generateContent that stand for those of another API.

What the model thought is left out: it needs the signature of the server. Calls of other servers have none, and get the
word by which Google's own CLI says so, without which Gemini 3 refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from vtc.apis import media
from vtc.apis.asking import placed
from vtc.apis.base import Json
from vtc.apis.gemini.words import camel, error_of, part_of_call
from vtc.events import Answer, Asked, Failure, Media, Message

_CONFIG = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "stop": "stopSequences",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
LIMITS: Mapping[str, Sequence[str]] = {name: (f"generationConfig.{key}",) for name, key in _CONFIG.items()}
CARRIED: Sequence[str] = (
    *("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "labels"),
    *(f"generationConfig.{key}" for key in ("thinkingConfig", "responseMimeType", "responseSchema")),
    *(f"generationConfig.{key}" for key in ("responseJsonSchema", "candidateCount")),
)
UNSIGNED = "skip_thought_signature_validator"
_BUDGETS = {"none": 0, "low": 1024, "minimal": 1024, "medium": 8192}  # a budget is read as the first word of it
"""Tokens to think with, by Google's own table for clients of chat completions; any other word is `_MOST`."""
_MOST = 24576


def ask(asked: Asked) -> Json:
    """Write a request, but for what stands in its path."""
    opening, *rest = asked.messages if asked.messages[:1] else [Message("user")]
    is_prompt = opening.role == "system"
    fields: dict[str, Any] = {"contents": _contents(rest if is_prompt else asked.messages)}
    if is_prompt:
        fields["systemInstruction"] = {"parts": [*_parts(opening)]}
    if asked.tools:
        fields["tools"] = [
            {
                "functionDeclarations": [
                    {"name": one.name, "description": one.description, "parametersJsonSchema": dict(one.parameters)}
                    for one in asked.tools
                ]
            }
        ]
        if asked.choice != "auto":
            said: dict[str, Any] = {"mode": "NONE" if asked.choice == "none" else "ANY"}
            if asked.choice not in ("none", "required"):
                said["allowedFunctionNames"] = [asked.choice]
            fields["toolConfig"] = {"functionCallingConfig": said}
    config: dict[str, Any] = placed(asked.limits, LIMITS).get("generationConfig", {})
    if asked.effort is not None:
        budget = _BUDGETS.get(asked.effort, _MOST)
        config["thinkingConfig"] = {"thinkingBudget": budget, "includeThoughts": budget > 0}
    if asked.answer:
        schema = {"responseJsonSchema": asked.answer.schema} if asked.answer.schema else {}
        config |= {"responseMimeType": "application/json", **schema}
    return {**fields, "generationConfig": config} if config else fields


def effort(config: Mapping[str, Any]) -> str | None:
    """Read how much is to be thought; None where the request leaves it to the model."""
    said = camel(config.get("thinkingConfig") or {})
    budget, level = said.get("thinkingBudget"), said.get("thinkingLevel")
    if isinstance(level, str):
        return level.lower()
    if not isinstance(budget, int) or budget < 0:
        return None
    return next((word for word, most in _BUDGETS.items() if budget <= most), "high")


def answer(config: Mapping[str, Any]) -> Answer | None:
    """Read the form that the answer must have; None if it is free."""
    if config.get("responseMimeType") != "application/json":
        return None
    return Answer(config.get("responseJsonSchema") or lowered(config.get("responseSchema")))


def lowered(schema: Any) -> Any:
    """Write a schema's types as JSON Schema does: Google's own subset has them in capitals."""
    if isinstance(schema, list):
        return [lowered(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else value if key == "enum" else lowered(value)
        for key, value in schema.items()
    }


def _contents(messages: Sequence[Message]) -> list[Json]:
    """Write messages; results, and what the user says after them, are one content."""
    entries: list[dict[str, Any]] = []
    for message in messages:
        role = "model" if message.role == "assistant" else "user"
        if not entries or entries[-1]["role"] != role:
            entries.append({"role": role, "parts": []})
        entries[-1]["parts"] += _parts(message)
    return [entry for entry in entries if entry["parts"]]


def _parts(message: Message) -> Iterator[Json]:
    if message.role == "tool":
        said = {"name": message.name or "tool", "response": {"output": message.text}}
        yield {"functionResponse": {**({"id": message.call_id} if message.call_id else {}), **said}}
    for one in media.parts_of(message):
        if isinstance(one, Media):
            yield _shown(one)
        elif message.role != "tool" and one:
            yield {"text": one}
    for place, call in enumerate(message.calls):
        yield {**part_of_call(call), **({} if place else {"thoughtSignature": UNSIGNED})}


def _shown(one: Media) -> Json:
    kind = {"mimeType": one.media_type} if one.media_type else {}
    return {"inlineData": {**kind, "data": one.data}} if one.data else {"fileData": {**kind, "fileUri": one.url}}


def meaning(part: Any) -> str | Media | None:
    """Tell what a part of a message is."""
    said = camel(part)
    found = camel(said.get("inlineData") or said.get("fileData") or {})
    type_ = str(found.get("mimeType") or "")
    kind: Literal["image", "document"] = "image" if type_.startswith("image/") else "document"
    if isinstance(data := found.get("data"), str):
        return Media(kind, type_, data, name=str(found.get("displayName") or ""))
    return media.from_url(kind, found.get("fileUri"))


def kind(part: Any) -> str:
    """Name a part that cannot be told; what was thought before is left out without a word."""
    return "" if part.get("thought") else next((key for key in part if key != "thoughtSignature"), "")


def error(failure: Failure, status: int) -> Json:
    """Write an error."""
    return error_of(failure.message, failure.kind, status)
