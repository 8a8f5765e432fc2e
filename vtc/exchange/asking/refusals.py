"""What a server's refusal teaches: by its message, whatever its status, the step without which it was refused.

The words are those of vLLM, SGLang, llama.cpp, LM Studio, Ollama, Mistral, DeepSeek, of chat templates and of hosted
APIs (threads of theirs and of their clients, to 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vtc.apis.contract import FULL
from vtc.events import Failure
from vtc.profiles.planner import PROMPT

_NOT_OF_THE_REQUEST = (401, 402, 403, 404, 405, 408, 429, 502, 503, 504)
"""Statuses of what no other request would mend."""
_WINDOW = re.compile(r"(?:context (?:length|window|size)|n_ctx)\D{0,40}(\d{3,8})", re.I)
_INPUT = re.compile(
    r"(\d{1,8}) (?:input tokens|(?:tokens )?in the (?:input|messages|prompt))"
    r"|(?:prompt|input)\D{0,30}?(\d{1,8}) tokens",
    re.I,
)
_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens|completion tokens|in the completion", re.I)
_LEAST = re.compile(r"below (?:the )?minimum.{0,40}?(?:>=|least) ?(\d{1,4})\b", re.I)
_MOST = re.compile(
    r"range of max_tokens is \[\d+, ?(\d+)\]|max_tokens: \d+ > (\d+)|max_(?:completion_|output_)?tokens\W.{0,60}"
    r"(?:less than or equal to|at most|maximum(?: allowed)?(?: value)?(?: of| is)?|<=) ?[`'\"]?(\d+)",
    re.I,
)


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.I | re.S)


_STRICT = {"developer": True, "system": "folded", "alternate": True, "something": "first", "nulls": True}
"""What templates want that count turns: a user and a model that speak in turns, each in words."""
_WRONG_ROLE = r"(?:unknown|unexpected|invalid|unsupported) (?:message )?role"
_ALTERNATE = r"roles must alternate|alternate between .{0,12}user"
_ROLES = r"Only user[\w,' ]* roles are supported"
_ROWS: tuple[tuple[Mapping[str, Any], re.Pattern[str]], ...] = (
    (
        {"schemas": "grammar"},
        _words(
            r"(?:failed to|error) pars(?:e|ing) grammar",
            r"Unable to generate parser for this template",
            r"pattern must start with '\^'",
            r"number of repetitions exceeds|repeated multiplied by the new repetition",
            r"JSON schema conversion failed|Unrecognized schema",
            r"(?:grammar|json.?schema).{0,60}(?:not supported|unsupported|invalid|could not be compiled)",
        ),
    ),
    ({"schemas": "plain"}, _words(r"Unknown name \W*(?:\$schema|additionalProperties|const|pattern|format|\$ref)")),
    ({"system": "user"}, _words(r"system (?:role|messages?|prompt)s?(?: is| are)? not supported")),
    (
        {**_STRICT, "results": True, "after_results": True},
        _words(r"After the optional system message, .{0,20}roles must alternate"),
    ),
    (_STRICT, _words(_ALTERNATE)),
    (
        {"system": "folded"},
        _words(
            r"system.{0,12} message.{0,20} (?:must|should) be (?:at the beginning|(?:the )?first)",
            r"Only the first message can (?:be|have).{0,20}system",
        ),
    ),
    (
        {"developer": True},
        _words(
            r"unknown variant `developer`",
            r"developer.{0,40}(?:not one of|is not|unsupported|invalid)",
        ),
    ),
    (
        {"developer": True, "system": "folded"},
        _words(rf"{_WRONG_ROLE}\W{{1,3}}(?:developer|system)", r"(?:unexpected|invalid) message role", _ROLES),
    ),
    ({"after_results": True}, _words(r"Unexpected role '?user'? after role '?tool'?")),
    (
        {"ids": "alphanumeric9"},
        _words(r"nine alphanumeric", r"alphanumeric strings with length 9", r"a-z, A-Z, 0-9, with a length of 9"),
    ),
    (
        {"ids": "short"},
        _words(
            r"(?:tool_calls\W+\d+\W+id|call_id|input\[\d+\]\.(?:call_)?id)\W.{0,30}(?:too long|maximum length|pattern)"
        ),
    ),
    (
        {"names": True},
        _words(
            r"function\W{1,3}name\W.{0,80}(?:pattern|too long|maximum length|a-z)",
            r"Function name was .{0,100}must be",
            r"tools?\W{1,3}\d+\W.{0,30}name\W.{0,60}(?:pattern|too long|at most 64)",
        ),
    ),
    (
        {"nulls": True},
        _words(
            r"NoneType",
            r"'None' has no attribute|has no attribute 'content'",
            r"(?:invalid|unrecognized|unknown) content type|(?:None|list object) has no element",
            r"content\W.{0,60}(?:must|can|may)(?: not|not) be (?:null|none)",
        ),
    ),
    (
        {"text": True},
        _words(
            r"can only concatenate (?:str \(not \W?list|list)",
            r"unsupported operand type\(s\) for \+.{0,30}list|'list(?: object)?' has no attribute",
            r"cannot unmarshal array into Go struct field .{0,40}content",
            r"content\W.{0,40}(?:must be|expected) a? ?string",
            r"expected (?:a )?string.{0,20} got (?:a )?list|Invalid (?:system|user|assistant) message",
        ),
    ),
    ({"single": True}, _words(r"single tool.?calls? at once|only (?:supports? )?(?:one|a single) tool call")),
    (
        {"results": True},
        _words(
            r"must be followed by tool messages",
            r"must be a response to a prece+ding message with '?tool_calls",
            r"Not the same number of function calls and responses",
            r"tool_call_id .{0,60}not found",
            r"`tool_use` ids were found without|unexpected `tool_use_id`",
            r"No tool (?:output|call) found for",
            r"Unexpected role '?tool'? after role",
        ),
    ),
    (
        {"empty": True},
        _words(
            r"must have .{0,60}content or .{0,20}tool.?calls",
            r"content.{0,30}(?:must not|cannot) be empty",
            r"all messages must have non-empty content|message.{0,20}must not be empty",
        ),
    ),
    (
        {"something": "first"},
        _words(r"No user query found|no first user message|first message must (?:be|use).{0,20}user"),
    ),
    (
        {"choice": True},
        _words(
            r"does not support (?:this|required|the)? ?tool_choice",
            r"tool_choice.{0,40}(?:not supported|unsupported)",
            r"only .?auto.? is supported for tool_choice",
        ),
    ),
    (
        {"images": "noted"},
        _words(
            r"(?:image|vision|multi-?modal).{0,60}(?:not|n't|un)\s?(?:be )?(?:support|allow|accept|enabled)",
            r"(?:not|n't) (?:support|accept|have|take).{0,40}(?:image|vision|multi-?modal)",
            r"unknown variant `image_url`|not a multi-?modal|at most 0 image",
        ),
    ),
    (
        {"thinking": "unsaid"},
        _words(
            r"(?:think|reasoning|effort|encrypted content).{0,80}(?:not|n't|un)\s?(?:be )?"
            r"(?:support|allow|accept|enabled)"
            r"|(?:not|n't|un)\s?(?:support|recogni).{0,60}(?:think|reasoning|effort)"
            r"|when thinking is enabled|'enabled' or 'disabled'"
        ),
    ),
    (
        {PROMPT: True},
        _words(
            r"peg-native format",
            _ALTERNATE,
            _ROLES,
            rf"{_WRONG_ROLE}\W{{1,3}}tool\b(?!\W{{0,3}}after)",
            r"single tool.?calls? at once",
            r"not \W?dict\W{0,3} to str|unsupported operand type\(s\) for \+.{0,30}dict",
        ),
    ),
)
"""The first that fits and holds a step that is not known yet counts; where it changes nothing, the next. Templates
raise the same words for several reasons: what helps most of them, and costs least, comes first."""

_MORE = {"folded": "user", "grammar": "plain", "short": "alphanumeric9"}
"""By the value of a step, the one that does the same and more: what teaches both must not go from one to the other."""


GRAMMARS = ("constrain", "strict")
"""The steps that have the server decode by a grammar: any refusal may be due to them."""
_OF_GRAMMARS = _words(
    r"structur(?:al|ed)[_ ](?:tag|output)|response_format|grammar|guided|xgrammar|llguidance|json_schema|`?format`?:",
    r"\bstrict\b|additionalProperties",
)
_NOT_UNDERSTOOD = (400, 422, 501)


class Lesson(NamedTuple):
    """The steps that a refusal teaches, by name."""

    steps: Mapping[str, Any]
    once: int | None = None
    """For this request the limit on its reply: so many tokens are left."""


def lesson(status: int, words: str, known: Mapping[str, Any]) -> Lesson | None:
    """Read a server's refusal; None if it teaches nothing but what is `known`: steps that were taken."""
    if status in _NOT_OF_THE_REQUEST:
        return None
    window, given = _WINDOW.search(words), _INPUT.search(words)
    if window and given and _LIMIT.search(words):
        # What is left is known for this request; for others it is estimated.
        left = int(window[1]) - int(given[1] or given[2])
        return Lesson({"context": int(window[1])}, left) if left > 0 else None
    least = _LEAST.search(words)
    if least and _LIMIT.search(words):
        return Lesson({"max_tokens": False}, int(least[1]))
    if (most := _MOST.search(words)) and (found := next(filter(None, most.groups()), None)):
        return Lesson({"max_tokens": int(found)}) if known.get("max_tokens") != int(found) else None
    grammar = next((step for step in GRAMMARS if known.get(step)), "")
    if grammar and _OF_GRAMMARS.search(words):
        return Lesson({grammar: False})
    for steps, pattern in _ROWS:
        more = {name: value for name, value in steps.items() if known.get(name) not in (value, _MORE.get(value, value))}
        if more and pattern.search(words):
            return Lesson(more)
    # A server that does not know the field says so in any words.
    return Lesson({grammar: False}) if grammar and status in _NOT_UNDERSTOOD else None


# The model's window, where a prompt does not fit in: the client API's own error, or a cut that nobody told.
#
# An agent that is told in its own words makes the conversation shorter, and goes on.


_FULL = re.compile(
    r"exceeds? the (?:available )?(?:context|model's)|exceed_context_size|context_length_exceeded|prompt is too long"
    r"|longer than the model's context|exceed\w* (?:the )?(?:max\w* )?context length|too large for model with"
    r"|context (?:the )?overflows|greater than the context length|is too long to fit into the model"
    r"|maximum context length is \d+ tokens|input is too long|prompt too long",
    re.I,
)
_MOST_WORDS = (
    re.compile(r"(?:context (?:length|size|window)|n_ctx\W{1,4}|model with)\D{0,24}(\d{3,8})", re.I),
    re.compile(r"> (\d{3,8}) maximum|(\d{3,8}) maximum context", re.I),
)
_GIVEN = (
    re.compile(
        r"n_prompt_tokens\W{1,4}(\d+)|(\d+) (?:input tokens|(?:tokens )?in the (?:input|messages|prompt))", re.I
    ),
    re.compile(r"(?:prompt|input|request|total length|keep the first|resulted in)\D{0,24}(\d+)(?: tokens|\))", re.I),
    re.compile(r"requested (\d+) tokens", re.I),
)
_NAMED_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens\W{1,3} .{0,60}too large", re.I)
SLACK = 8
"""Tokens by which a prompt that was cut may differ from the window, or from half of it (Ollama keeps so much)."""
LEAST = 1024
PLAIN = 5
"""Bytes that are a token, at the most, of most text: fewer tokens where the number of them is that of a window."""
FEWEST = 14
"""Bytes that no token of any text stands for, on an average: a prompt of fewer tokens was cut, whatever they are."""


def full(status: int, words: str, said: str, size: int) -> Failure | None:
    """Read the error of a prompt that is too long; None for any other.

    `words` are all of the error, `said` what people are told of it, `size` the bytes of the prompt.
    """
    if status not in (400, 413, 422, 500) or not _FULL.search(words) or _NAMED_LIMIT.search(words):
        return None
    most, given = _number(_MOST_WORDS, words), _number(_GIVEN, words)
    if most and given and given < most:
        return None  # it is the reply that has no room
    tokens = given or max(size // 4, 2)
    told = f"prompt is too long: {tokens} tokens > {most or tokens - 1} maximum ({said})"
    return Failure(told, FULL)


def _number(patterns: Iterable[re.Pattern[str]], words: str) -> int:
    """Find a number in an error; 0 if it tells none."""
    found = (one for pattern in patterns if (match := pattern.search(words)) for one in match.groups() if one)
    return int(next(found, 0))


def cut(tokens: int, size: int, window: int | None = None) -> str:
    """Tell that a prompt of `size` bytes was cut, by the tokens that the server counted; empty if it was not."""
    is_full = any(abs(tokens - one) <= SLACK for one in ([window, window // 2] if window else _windows(tokens)))
    if tokens < LEAST or size < tokens * (PLAIN if is_full else FEWEST):
        return ""
    return (
        f"the server cut the prompt: it read {tokens} tokens of {size // 1000} KB; give it a longer window "
        "(Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`; key `context` of its profile)"
    )


def _windows(tokens: int) -> list[int]:
    """Windows are powers of two as a rule."""
    return [1 << (tokens + SLACK).bit_length() - 1]
