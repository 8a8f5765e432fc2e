"""Reading requests of Gemini's API. Fields and entries that are not changed keep their original bytes.

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

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.contract import Json
from vtc.apis.fields import count_of, part_of, split_body, text_at
from vtc.apis.gemini_generate.parts import (
    SIGNATURE,
    is_text,
    read_call,
    read_result_text,
    rename_fields,
    render_media,
    to_camel_case,
)
from vtc.apis.generation import find_effort
from vtc.apis.layout import UNSIGNED_CALL_SIGNATURE, BodyLayout, FullError, Shape
from vtc.apis.place import Place
from vtc.events import Answer, Media, Message, Opaque, Seal, ThinkingForm, Thought, Tool, ToolCall

CONFIG = "generationConfig"
DECLARATIONS = "functionDeclarations"
_ROLES = {"function": "user"}
"""Alternative names of roles."""
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


def _normalize_tools(entries: Any) -> Any:
    """Convert function declarations of other APIs to one entry of this API; an entry without functions is removed."""
    if not isinstance(entries, list):
        return entries
    functions = [*map(_foreign_function, entries)]
    others = (entry for entry, function in zip(entries, functions, strict=True) if function is None)
    kept = [entry for entry in others if entry != {DECLARATIONS: []}]
    if len(kept) == len(entries):
        return entries
    schemas = [function.render_flat("parametersJsonSchema") for function in functions if function]
    declarations = [{key: value for key, value in schema.items() if key != "strict"} for schema in schemas]
    return [*kept, {DECLARATIONS: declarations}] if declarations else kept


def _foreign_function(entry: Any) -> shapes.ForeignFunction | None:
    return None if isinstance(entry, dict) and DECLARATIONS in entry else shapes.read_function(entry)


def _normalize_part(part: Any) -> Any:
    """Convert a text or image part of another API to this API's shape, which has no `type` field."""
    spelled = {**part, "image_url": part["imageUrl"]} if isinstance(part, dict) and "imageUrl" in part else part
    meaning = shapes.read_foreign_part(spelled, ("text", "input_text", "output_text", "image_url", "input_image"))
    if meaning is None:
        return part
    return {"text": meaning} if isinstance(meaning, str) else render_media(meaning)


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
        functions = (function for entry in self.fields.get("tools") or () for function in entry.get(DECLARATIONS) or ())
        return [
            Tool(str(function["name"]), str(function.get("description") or ""), _read_parameters(function))
            for function in functions
            if function
        ]

    def list_names(self, entries: Sequence[Any]) -> Iterator[str]:
        for entry in entries:
            yield from (name for function in entry.get(DECLARATIONS) or () if (name := self.get_name(function)))
            yield from (key for key in entry if key != DECLARATIONS and not entry.keys() & {"type", "name"})

    def _read_choice(self, choice: Any, declared: Sequence[str]) -> tuple[str, Collection[str] | None]:
        config = part_of(choice, "functionCallingConfig")
        mode, names = str(config.get("mode") or "AUTO").upper(), config.get("allowedFunctionNames")
        if mode == "ANY" and names:
            return (str(names[0]), None) if len(names) == 1 else ("required", {*names})
        return {"ANY": "required", "NONE": "none"}.get(mode, "auto"), None


class Request(request.Request):
    """A request; `form` is True if it asks for the model's reasoning."""

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
            "max_tokens": (f"{CONFIG}.maxOutputTokens",),
            "stop": (f"{CONFIG}.stopSequences",),
            "temperature": (f"{CONFIG}.temperature",),
            "top_p": (f"{CONFIG}.topP",),
            "top_k": (f"{CONFIG}.topK",),
            "seed": (f"{CONFIG}.seed",),
            "presence_penalty": (f"{CONFIG}.presencePenalty",),
            "frequency_penalty": (f"{CONFIG}.frequencyPenalty",),
        },
        carried=(
            *("model", "safetySettings", "labels"),
            *(f"{CONFIG}.{key}" for key in ("thinkingConfig", "responseMimeType", "responseSchema")),
            *(f"{CONFIG}.{key}" for key in ("responseJsonSchema", "candidateCount", "responseModalities")),
        ),
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
                Shape(f"tools.*.{DECLARATIONS}.*.{field}", shapes.fix_schema, shapes.SCHEMAS_HAVE_OBJECTS)
                for field in ("parameters", "parametersJsonSchema")
            ),
            Shape(CONFIG, shapes.object_for_list, "an empty list in generationConfig converted to an object"),
        ),
    )
    TOOL_FIELDS = GeminiToolFields

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
        config = part_of(self.fields, CONFIG)
        thinking = part_of(config, "thinkingConfig")
        effort, budget = _read_effort(thinking), count_of(thinking, "thinkingBudget")
        schema = config.get("responseJsonSchema") or convert_schema(config.get("responseSchema"))
        form = _read_answer(config, schema)
        self.generation = replace(
            self.generation,
            effort=effort,
            thinks=None if effort is None else effort != "none",
            thinking=ThinkingForm(budget if budget > 0 else None, thinking.get("includeThoughts") is True),
            answer=form,
            constrained=form is not None or config.get("responseMimeType") == "text/x.enum",
            wants_choices=config.get("candidateCount") not in (None, 1),
        )
        self.refers = "cachedContent" if self.fields.get("cachedContent") else ""
        self.form = thinking.get("includeThoughts") is True
        calls = (part["functionCall"].get("id") for entry in self.entries for part in _list_calls(entry))
        self.call_ids = frozenset(id_ for id_ in calls if isinstance(id_, str))

    def _read(self) -> Iterator[request.MessageGroup]:
        return ((_read_messages(entry), (place,)) for place, entry in enumerate(self.entries))

    def _read_system_prompt(self, prompt: Any) -> tuple[str | Opaque, ...]:
        return (prompt,) if isinstance(prompt, str) else _read_content(prompt["parts"])

    @staticmethod
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
                return content.parse_media_url("document" if kind == "document" else "image", url)
            case {"text": str(text)}:
                return text
        return None

    @staticmethod
    def name_part(part: Any) -> str:
        """Name a part that other APIs cannot express; empty for reasoning, which is omitted silently."""
        if not isinstance(part, Mapping) or part.get("thought") or "thoughtSignature" in part:
            return ""
        return next((key for key in part if key not in ("videoMetadata", "mediaResolution")), "part")

    def is_failed_result(self, message: Message) -> bool:
        return "error" in part_of(part_of(message.source, "functionResponse"), "response")

    def get_call_seals(self, call: ToolCall) -> Sequence[str]:
        signature = call.source.get(SIGNATURE) if isinstance(call.source, dict) else None
        return (signature,) if isinstance(signature, str) and signature else ()

    def without_reasoning(self, message: Message) -> Message:
        message = super().without_reasoning(message)
        return replace(message, calls=tuple(map(_drop_seal, message.calls)))

    def _is_reasoning(self, part: Any) -> bool:
        return _is_thought(part)


def _find_media_kind(media_type: str) -> str:
    """Return the kind of a media type; empty if other APIs cannot express it."""
    if media_type.startswith("image/"):
        return "image"
    return "document" if media_type == "application/pdf" else ""


def _read_effort(config: Mapping[str, Any]) -> str | None:
    """Return the effort level of a `thinkingConfig`, in the words of `GenerationConfig.effort`."""
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    if isinstance(level, str):
        return level.lower()
    if isinstance(budget, int) and budget >= 0:
        return find_effort(budget) if budget else "none"
    return "auto" if budget == -1 or config.get("includeThoughts") is True else None


def _read_answer(config: Mapping[str, Any], schema: Any) -> Answer | None:
    """Return the required form of the answer; `schema` is a JSON Schema or None."""
    if config.get("responseMimeType") != "application/json":
        return None
    return Answer(schema if isinstance(schema, Mapping) else None)


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
        rest, calls = content.split_calls(parts, lambda part: bool(part.get("functionCall")), read_call, _is_thought)
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
    parts = (text, *more) if text else more
    return Message("tool", parts, call_id=text_at(response, "id"), name=text_at(response, "name"), source=part)


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
