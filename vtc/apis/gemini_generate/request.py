"""Requests of Gemini's API. Fields and entries that are not changed keep their original bytes.

    POST …/models/MODEL:generateContent          {"systemInstruction": {"parts": [{"text": "…"}]},
                                                  "contents": [{"role": "user", "parts": [{"text": "…"}]}]}

Each tool result in a user's entry becomes a separate canonical message. Results name their tool, and often not their
call; then they are matched by order. The format is that of ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis import content as media
from vtc.apis import request, shapes, tool_fields
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json, Question
from vtc.apis.fields import part_of, split_body, text_at
from vtc.apis.gemini_generate.parts import (
    SIGNATURE,
    is_text,
    read_call,
    read_result_text,
    rename_fields,
    render_call,
    render_declaration,
    render_result,
    render_signature,
    to_camel_case,
)
from vtc.apis.layout import UNSIGNED_CALL_SIGNATURE, BodyLayout, FullError, Shape
from vtc.apis.place import Place
from vtc.events import (
    Answer,
    CanonicalRequest,
    Failure,
    ListedModel,
    Media,
    Message,
    Opaque,
    Seal,
    Thought,
    Tool,
    ToolCall,
)

_CONFIG = "generationConfig"
LAYOUT = BodyLayout(
    model_paths=("modelVersion",),
    name="request of Gemini's API",
    full=FullError(
        "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window}).",
        sign="exceeds the maximum number of tokens allowed",
    ),
    entries="contents",
    prompt="systemInstruction",
    choice="toolConfig",
    parallel=None,
    in_path=True,
    unsigned=Thought(encrypted=UNSIGNED_CALL_SIGNATURE, on="call"),
    limits={
        "max_tokens": (f"{_CONFIG}.maxOutputTokens",),
        "stop": (f"{_CONFIG}.stopSequences",),
        "temperature": (f"{_CONFIG}.temperature",),
        "top_p": (f"{_CONFIG}.topP",),
        "top_k": (f"{_CONFIG}.topK",),
        "seed": (f"{_CONFIG}.seed",),
        "presence_penalty": (f"{_CONFIG}.presencePenalty",),
        "frequency_penalty": (f"{_CONFIG}.frequencyPenalty",),
    },
    carried=(
        *("model", "safetySettings", "labels"),
        *(f"{_CONFIG}.{key}" for key in ("thinkingConfig", "responseMimeType", "responseSchema")),
        *(f"{_CONFIG}.{key}" for key in ("responseJsonSchema", "candidateCount", "responseModalities")),
    ),
)
THINKING_BUDGETS = {"minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
"""Token budgets for thinking, by the effort levels of other APIs."""
_EFFORT_ALIASES = {"xhigh": "high", "max": "high"}
"""Effort levels that this API lacks, with their closest ones."""
_ERROR_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def build_request(canonical: CanonicalRequest) -> Json:
    """Render a canonical request for this API; the model is in the path."""
    prompt, messages = canonical.split_system_prompt()
    fields: dict[str, Any] = {"contents": media.group_turns(messages, _render_parts, model="model", key="parts")}
    if prompt:
        fields["systemInstruction"] = {"parts": [{"text": prompt}]}
    if canonical.tools:
        fields["tools"] = [{"functionDeclarations": [*map(render_declaration, canonical.tools)]}]
        mode = {"none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
        one_tool = {"mode": "ANY", "allowedFunctionNames": [canonical.choice]}
        if canonical.choice != "auto":
            fields["toolConfig"] = {"functionCallingConfig": mode.get(canonical.choice, one_tool)}
        elif any(tool.strict for tool in canonical.tools):
            fields["toolConfig"] = {"functionCallingConfig": {"mode": "VALIDATED"}}
    config: dict[str, Any] = LAYOUT.write_limits(canonical.limits).get(_CONFIG, {})
    if canonical.effort is not None:
        config["thinkingConfig"] = _render_thinking(canonical.effort)
    if canonical.answer:
        schema = {"responseJsonSchema": canonical.answer.schema} if canonical.answer.schema else {}
        config |= {"responseMimeType": "application/json", **schema}
    return {**fields, _CONFIG: config} if config else fields


def _render_thinking(effort: str) -> Json:
    if effort == "none":
        return {"thinkingBudget": 0}
    level = _EFFORT_ALIASES.get(effort, effort)
    return {"includeThoughts": True, "thinkingBudget": THINKING_BUDGETS.get(level, -1)}


def _render_parts(message: Message) -> list[Json]:
    """Render a message as parts."""
    if message.role == "tool":
        written = _render_sequence(message)
        text = "\n".join(part["text"] for part in written if "text" in part)
        return [render_result(message, text), *(part for part in written if "text" not in part)]
    parts: list[Json] = [*_render_sequence(message)]
    if message.reasoning:
        parts.insert(0, {"text": message.reasoning, "thought": True})
    return parts


def _render_sequence(message: Message) -> list[dict[str, Any]]:
    """Render the content and calls of a message, in order, each seal in its original place: on a part or alone."""
    parts: list[dict[str, Any]] = []
    on_calls: list[Json] = []  # seals of the calls that follow
    for part in message.sequence:
        seal = _get_seal(part) if isinstance(part, Opaque) else None
        if isinstance(part, ToolCall):
            parts.append({**render_call(part), **(on_calls.pop(0) if on_calls else {})})
        elif seal is None:
            parts += _render_part(part)
        elif seal.on == "call":
            on_calls.append({SIGNATURE: seal.encrypted})
        elif seal.on == "text" and parts and is_text(parts[-1]):
            parts[-1] = {**parts[-1], SIGNATURE: seal.encrypted}
        else:
            parts.append({"text": "", SIGNATURE: seal.encrypted})
    return [*parts, *({"text": "", **rest} for rest in on_calls)]


def _get_seal(part: Opaque) -> Thought | None:
    """Return the seal in an opaque part; None if it has none."""
    if part.thought:
        return part.thought if part.thought.encrypted else None
    is_bare = isinstance(part.part, dict) and part.part.keys() == {SIGNATURE}
    return Thought(encrypted=part.part[SIGNATURE], on="text") if is_bare else None


def _render_part(part: str | Opaque) -> Iterator[dict[str, Any]]:
    if isinstance(part, str):
        if part:
            yield {"text": part}
    elif part.part is not None:
        yield part.part
    elif part.thought:
        yield {"text": part.thought.text, "thought": True}
    elif part.media and part.media.data:
        yield {"inlineData": {"mimeType": part.media.media_type, "data": part.media.data}}
    elif part.media:
        yield {"fileData": {"mimeType": part.media.media_type, "fileUri": part.media.url}}


def interpret_part(part: Any) -> str | Media | Seal | None:
    """Return the canonical meaning of a part: text, media or a seal; None if it has none."""
    match part:
        case str():
            return part
        case {"thoughtSignature": str(value)}:
            return Seal(value)
        case {"thought": True}:
            return None
        case {"inlineData": {"mimeType": str(type_), "data": str(data)}} if kind := _find_media_kind(type_):
            return Media("image" if kind == "image" else "document", type_, data)
        case {"fileData": {"fileUri": str(url), **rest}} if url.startswith(("http:", "https:")):
            kind = _find_media_kind(str(rest.get("mimeType") or ""))
            return media.parse_media_url("document" if kind == "document" else "image", url)
        case {"text": str(text)}:
            return text
    return None


def _find_media_kind(media_type: str) -> str:
    """Return the kind of a media type; empty if other APIs cannot express it."""
    if media_type.startswith("image/"):
        return "image"
    return "document" if media_type == "application/pdf" else ""


def name_part(part: Any) -> str:
    """Name a part that other APIs cannot express; empty for reasoning, which is omitted silently."""
    if not isinstance(part, Mapping) or part.get("thought") or "thoughtSignature" in part:
        return ""
    return next((key for key in part if key not in ("videoMetadata", "mediaResolution")), "part")


def read_effort(config: Mapping[str, Any]) -> str | None:
    """Return the effort level of a `thinkingConfig`, in the words of `GenerationConfig.effort`."""
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    if isinstance(level, str):
        return level.lower()
    if isinstance(budget, int) and budget >= 0:
        if budget == 0:
            return "none"
        return next((name for name, max_tokens in THINKING_BUDGETS.items() if budget <= max_tokens), "high")
    return "auto" if budget == -1 or config.get("includeThoughts") is True else None


def read_answer(config: Mapping[str, Any], schema: Any) -> Answer | None:
    """Return the required form of the answer; `schema` is a JSON Schema or None."""
    if config.get("responseMimeType") != "application/json":
        return None
    return Answer(schema if isinstance(schema, Mapping) else None)


def build_error(failure: Failure, status: int) -> Json:
    """Render an error for an HTTP status."""
    known = _ERROR_STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    code = 400 if failure.kind == CONTEXT_LENGTH_EXCEEDED else 500 if status == 200 else status
    return {"error": {"code": code, "message": failure.message, "status": "INTERNAL" if status == 200 else known}}


PLACE = Place(
    "/models/{model}:generateContent",
    "/models/{model}:streamGenerateContent",
    "alt=sse",
    "/v1beta",
    versions=("/v1", "/v1alpha"),
    kinds=("tunedModels", "endpoints"),
    key="x-goog-api-key",
    key_query="key",
    own_headers="x-goog-",
    lists="/v1beta/models?pageSize=1000",
)
COUNT_PLACE = Place("/models/{model}:countTokens")
_ROLES = {"function": "user"}
"""Alternative names of roles."""
_DECLARATIONS = "functionDeclarations"


def _normalize_tools(entries: Any) -> Any:
    """Convert function declarations of other APIs to one entry of this API; an entry without functions is removed."""
    if not isinstance(entries, list):
        return entries
    functions = [*map(_foreign_function, entries)]
    others = (entry for entry, function in zip(entries, functions, strict=True) if function is None)
    kept = [entry for entry in others if entry != {_DECLARATIONS: []}]
    if len(kept) == len(entries):
        return entries
    schemas = [function.render_flat("parametersJsonSchema") for function in functions if function]
    declarations = [{key: value for key, value in schema.items() if key != "strict"} for schema in schemas]
    return [*kept, {_DECLARATIONS: declarations}] if declarations else kept


def _foreign_function(entry: Any) -> shapes.ForeignFunction | None:
    return None if isinstance(entry, dict) and _DECLARATIONS in entry else shapes.read_function(entry)


def _normalize_part(part: Any) -> Any:
    """Convert a text or image part of another API to this API's shape, which has no `type` field."""
    spelled = {**part, "image_url": part["imageUrl"]} if isinstance(part, dict) and "imageUrl" in part else part
    meaning = shapes.read_foreign_part(spelled, ("text", "input_text", "output_text", "image_url", "input_image"))
    if meaning is None:
        return part
    return {"text": meaning} if isinstance(meaning, str) else next(_render_part(Opaque(media=meaning)), part)


def _normalize_response(value: Any) -> Any:
    """Convert a tool result to an object."""
    if isinstance(value, Mapping):
        return value
    return {} if value in (None, []) else {"output": value}


def _merge_results(entries: Any) -> Any:
    """Merge consecutive entries of tool results, because servers expect all results of one turn in one entry."""
    if not isinstance(entries, list):
        return entries
    out: list[Any] = []
    for entry in entries:
        if out and _has_only_results(entry) and _has_only_results(out[-1]):
            out[-1] = {**out[-1], "parts": [*out[-1]["parts"], *entry["parts"]]}
        else:
            out.append(entry)
    return out if len(out) < len(entries) else entries


def _has_only_results(entry: Any) -> bool:
    parts = entry.get("parts") if isinstance(entry, dict) and entry.get("role") != "model" else None
    return bool(parts) and isinstance(parts, list) and all(part_of(part, "functionResponse") for part in parts)


class GeminiToolFields(tool_fields.ToolFields):
    """The fields about the tools of Gemini's API."""

    def _read_tools(self) -> list[Tool]:
        functions = (
            function for entry in self.fields.get("tools") or () for function in entry.get(_DECLARATIONS) or ()
        )
        return [
            Tool(str(function["name"]), str(function.get("description") or ""), _read_parameters(function))
            for function in functions
            if function
        ]

    def list_names(self, entries: Sequence[Any]) -> Iterator[str]:
        for entry in entries:
            yield from (name for function in entry.get(_DECLARATIONS) or () if (name := self._get_name(function)))
            yield from (key for key in entry if key != _DECLARATIONS and not entry.keys() & {"type", "name"})

    def withhold_entries(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        for entry in entries:
            remaining = {key: value for key, value in entry.items() if key not in names}
            functions = remaining.pop(_DECLARATIONS, None) or ()
            if kept := [function for function in functions if self._get_name(function) not in names]:
                remaining[_DECLARATIONS] = kept
            if remaining:
                yield remaining

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        entries = entry.get(_DECLARATIONS) or ()
        if not any(self._get_name(function) in tools for function in entries):
            return None
        written = [
            {**_without_parameters(function), **render_signature(tool)}
            if (tool := tools.get(self._get_name(function) or ""))
            else function
            for function in entries
        ]
        return {**entry, _DECLARATIONS: written}

    def declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        if tools:
            kept["tools"] = [{_DECLARATIONS: [*map(self.render_declaration, tools)]}]

    render_declaration = staticmethod(render_declaration)

    def _read_choice(self, choice: Any, declared: Sequence[str]) -> tuple[str, Collection[str] | None]:
        config = part_of(choice, "functionCallingConfig")
        mode, names = str(config.get("mode") or "AUTO").upper(), config.get("allowedFunctionNames")
        if mode == "ANY" and names:
            return (str(names[0]), None) if len(names) == 1 else ("required", {*names})
        return {"ANY": "required", "NONE": "none"}.get(mode, "auto"), None

    def _rename_choice(self, choice: Any, names: Mapping[str, str]) -> Any:
        config = part_of(choice, "functionCallingConfig")
        if not config.get("allowedFunctionNames"):
            return choice
        allowed = [names.get(name, name) for name in config["allowedFunctionNames"]]
        return {**choice, "functionCallingConfig": {**config, "allowedFunctionNames": allowed}}


class Request(request.Request):
    """A request; `form` is True if it asks for the model's reasoning."""

    LAYOUT = replace(
        LAYOUT,
        shapes=(
            Shape(
                "contents.*.parts.*.functionCall.args",
                shapes.arguments_object,
                shapes.ARGUMENTS_ARE_OBJECTS,
            ),
            Shape("contents.*.parts.*.functionResponse.response", _normalize_response, "results converted to objects"),
            Shape("contents.*.parts.*", _normalize_part, shapes.OWN_PARTS),
            Shape("contents", _merge_results, "results of one turn merged into one entry"),
            Shape("tools", _normalize_tools, shapes.OWN_TOOLS),
            *(
                Shape(f"tools.*.{_DECLARATIONS}.*.{field}", shapes.fix_schema, shapes.SCHEMAS_HAVE_OBJECTS)
                for field in ("parameters", "parametersJsonSchema")
            ),
            Shape(_CONFIG, shapes.object_for_list, "an empty list in generationConfig converted to an object"),
        ),
    )
    interpret_part = staticmethod(interpret_part)
    name_part = staticmethod(name_part)

    @property
    def _tool_fields(self) -> GeminiToolFields:
        return GeminiToolFields(self.fields, self.LAYOUT)

    @staticmethod
    def _split(body: bytes, *, repair: bool) -> tuple[dict[str, msgspec.Raw], dict[str, Any], bool]:
        raw, fields, halved = split_body(body, repair=repair)
        if inner := raw.get("generateContentRequest"):  # a request to count tokens wraps it
            raw, fields, _ = split_body(bytes(inner))
        return rename_fields(raw), to_camel_case(fields), halved

    def _decode(self, path: str) -> None:
        own_path = path.partition("?")[0]
        match = PLACE.match_path(own_path) or COUNT_PLACE.match_path(own_path)
        self.model, self.stream = (match.model, match.streams) if match else (self.model, False)
        config = part_of(self.fields, _CONFIG)
        thinking = part_of(config, "thinkingConfig")
        effort = read_effort(thinking)
        schema = config.get("responseJsonSchema") or convert_schema(config.get("responseSchema"))
        form = read_answer(config, schema)
        self.generation = replace(
            self.generation,
            effort=effort,
            thinks=None if effort is None else effort != "none",
            answer=form,
            constrained=form is not None or config.get("responseMimeType") == "text/x.enum",
            wants_choices=config.get("candidateCount") not in (None, 1),
        )
        self.refers = "cachedContent" if self.fields.get("cachedContent") else ""
        self.form = thinking.get("includeThoughts") is True
        calls = (part["functionCall"].get("id") for entry in self._conversation for part in _list_calls(entry))
        self.call_ids = frozenset(id_ for id_ in calls if isinstance(id_, str))

    def _read(self) -> Iterator[request.MessageGroup]:
        return ((_read_messages(entry), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Append a message; consecutive re-encoded messages of one role are merged into one entry."""
        role = "model" if message.role == "assistant" else "user"
        last = entries[-1] if entries else None
        parts = _render_message(message)
        if isinstance(last, dict) and last["role"] == role:
            last["parts"] += parts
        elif parts:
            entries.append({"role": role, "parts": parts})

    def _read_system_prompt(self, prompt: Any) -> tuple[str | Opaque, ...]:
        return (prompt,) if isinstance(prompt, str) else _read_content(prompt["parts"])

    def _prompt(self, messages: Sequence[Message]) -> Any:
        return {"parts": [part for message in messages for part in _render_content(message.content)]}

    def is_failed_result(self, message: Message) -> bool:
        return "error" in part_of(part_of(message.source, "functionResponse"), "response")

    def get_call_seals(self, call: ToolCall) -> Sequence[str]:
        signature = call.source.get(SIGNATURE) if isinstance(call.source, dict) else None
        return (signature,) if isinstance(signature, str) and signature else ()

    def without_reasoning(self, message: Message) -> Message:
        message = super().without_reasoning(message)
        return replace(message, calls=tuple(map(_drop_seal, message.calls)))

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.name) and not part_of(result.source, "functionResponse").get("name")

    def with_reasoning(self, message: Message, field: str) -> Message:
        thought = (Opaque(thought=Thought(message.reasoning)),) if message.reasoning else ()
        return replace(message, content=(*thought, *message.content))

    def _is_reasoning(self, part: Any) -> bool:
        return _is_thought(part)


def convert_schema(schema: Any) -> Any:
    """Convert an OpenAPI schema in Google's spelling (`OBJECT`, `nullable`) to JSON Schema."""
    if isinstance(schema, list):
        return [convert_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {
        key: value if key in ("enum", "default", "example", "required") else convert_schema(value)
        for key, value in schema.items()
        if key not in ("nullable", "propertyOrdering")
    }
    if isinstance(type_ := out.get("type"), str):
        out["type"] = [type_.lower(), "null"] if schema.get("nullable") is True else type_.lower()
    return out


def _read_parameters(declaration: Mapping[str, Any]) -> Mapping[str, Any]:
    return part_of(declaration, "parametersJsonSchema") or convert_schema(part_of(declaration, "parameters"))


def _without_parameters(declaration: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in declaration.items() if key not in ("parameters", "parametersJsonSchema")}


def _list_calls(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (part for part in entry.get("parts") or () if isinstance(part, dict) and part.get("functionCall"))


def _read_content(parts: Iterable[Any]) -> tuple[str | Opaque, ...]:
    return tuple(part["text"] if is_text(part) else Opaque(part) for part in parts)


def _read_messages(entry: Mapping[str, Any]) -> list[Message]:
    """Parse an entry into canonical messages: each tool result becomes a separate one."""
    parts = entry.get("parts") or []
    if not all(isinstance(part, dict) for part in parts):
        raise TypeError("`parts` holds a value that is not an object")
    if entry.get("role") == "model":
        rest, calls = media.split_calls(parts, lambda part: bool(part.get("functionCall")), read_call, _is_thought)
        spoken = _read_content(part for whole in rest for part in _split_seal(whole))
        thoughts = "".join(str(part.get("text") or "") for part in parts if part.get("thought") is True)
        return [Message("assistant", spoken, calls, source=entry, reasoning=thoughts)]
    out: list[Message] = []
    for is_result, some in groupby(parts, lambda part: bool(part.get("functionResponse"))):
        if is_result:
            out += [_read_result(part) for part in some]
        else:
            role = str(entry.get("role") or "user")
            out.append(Message(_ROLES.get(role, role), _read_content(some), source=entry))
    return out or [Message("user", source=entry)]


def _read_result(part: Mapping[str, Any]) -> Message:
    response = part["functionResponse"]
    more: tuple[str | Opaque, ...] = tuple(Opaque(part) for part in response.get("parts") or ())
    text = read_result_text(part)
    content = (text, *more) if text else more
    return Message("tool", content, call_id=text_at(response, "id"), name=text_at(response, "name"), source=part)


def _is_thought(part: Any) -> bool:
    """True for a part that is reasoning, or holds only a seal of it."""
    if not isinstance(part, dict):
        return False
    return part.get("thought") is True or (
        SIGNATURE in part and not part.keys() - {SIGNATURE, "text"} and not part.get("text")
    )


def _split_seal(part: Json) -> Iterator[Json]:
    """Split the seal from the text part that it is on."""
    if part.get("text") and part.keys() == {"text", SIGNATURE}:
        yield {"text": part["text"]}
        yield {SIGNATURE: part[SIGNATURE]}
    else:
        yield part


def _drop_seal(call: ToolCall) -> ToolCall:
    """Remove the seal from a call."""
    if not (isinstance(call.source, dict) and SIGNATURE in call.source):
        return call
    return replace(call, source={key: value for key, value in call.source.items() if key != SIGNATURE})


def _render_message(message: Message) -> list[dict[str, Any]]:
    """Render a changed message as parts."""
    return [render_result(message, message.text)] if message.role == "tool" else _render_sequence(message)


def _render_content(content: Iterable[str | Opaque]) -> list[dict[str, Any]]:
    return [{"text": part} if isinstance(part, str) else part.part for part in content]


GOOGLE_HEADERS = {PLACE.key, "x-goog-api-client"}
"""Headers of Google's clients, which may also use the version `/v1` in the path."""


def render_model(model: ListedModel) -> Json:
    """Render a model for the answer to a side question."""
    limits = {"inputTokenLimit": model.window, "outputTokenLimit": model.max_reply_tokens}
    return {
        "name": f"models/{model.name}",
        "displayName": model.name,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        **{key: tokens for key, tokens in limits.items() if tokens},
        **({"thinking": model.abilities["thinking"]} if "thinking" in model.abilities else {}),
    }


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    return {"models": [*map(render_model, models)]}


def _is_google_client(query: str, headers: Mapping[str, str]) -> bool:
    return bool(GOOGLE_HEADERS & headers.keys()) or any(
        part.startswith(f"{PLACE.key_query}=") for part in query.split("&")
    )


QUESTIONS = (
    Question("models", "GET", "/models", render_model_list, _is_google_client),
    Question("model", "GET", PLACE.path.partition(":")[0], render_model, _is_google_client),
    Question("models", "GET", f"{PLACE.version}/models", render_model_list),
    Question("model", "GET", f"{PLACE.version}{PLACE.path.partition(':')[0]}", render_model),
    Question("count", "POST", COUNT_PLACE.path, lambda tokens: {"totalTokens": tokens}),
)
