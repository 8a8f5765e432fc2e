"""Hints for people: the cause of a server's error and what to do about it, and a possible call that was not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vtc.apis.fields import is_error
from vtc.json_text import decode_json, encode_json

MAX_MESSAGE_CHARS = 240
"""Maximum length of a quoted server message."""

ERROR_HINTS: tuple[tuple[tuple[int, ...], str, str], ...] = (
    # vLLM; Ollama; llama.cpp; others.
    (
        (400, 404, 422, 500, 501),
        r"tool choice requires|does not support (tools|function)|tools param requires|knows no tools"
        r"|tools?( calling| use)? (is|are) not supported|no endpoints found that support tool",
        "the server rejects `tools`: let VTC write them into the prompt with `--tools prompt` (option vtc_tools)",
    ),
    (
        (400, 404),
        r"model\b.{0,80}(not found|does not exist|not exist|no such|try pulling)|unknown model",
        "the server has no model of this name (GET /v1/models lists its models): `vtc run URL --model NAME` requests "
        'NAME instead of all missing models, `--set "vtc_models=claude-*=NAME"` instead of some',
    ),
    (
        (401, 403),
        "",
        "the server does not accept the client's API key; VTC forwards it unchanged, and if the client sends none, it "
        "sends the one in the environment variable of `--key-env NAME` (or of key_env in the server's profile)",
    ),
    (
        (400, 413, 422),
        r"context (length|size|window)|maximum context|too many tokens|prompt is too long|exceed.{0,40}context",
        "the conversation is longer than the model's context",
    ),
    (
        (404, 405),
        "",
        "the server has nothing at this path: does it speak this API? If not, name the one that it speaks: "
        "`--api openai-chat` (option vtc_upstream_api)",
    ),
    (  # nginx; Go
        (400,),
        r"HTTP request (was sent )?to (an )?HTTPS",
        "the server speaks https, but its URL in VTC begins with http: start VTC with https://",
    ),
    ((429,), "", "the server accepts no more requests for now"),
)
"""Statuses, a pattern of the message, and the explanation; the first match is used."""


PATH_HINTS = (
    (r"/v1/+v1/", "the path begins with /v1 twice: remove /v1 from the client's base URL"),
    (r"^/(chat/completions|responses|messages)\b", "the path lacks /v1: add it to the end of the client's base URL"),
)
"""Patterns of a path that the server does not know, and the explanation."""


_WEB_PAGE = re.compile(rb"\s{0,64}<(?:!doctype\s{1,9}html|html)\b", re.I)  # used with match
WEB_PAGE_HINT = "a web page: is this the model server?"


def is_web_page(body: bytes) -> bool:
    """Return True if a body is a web page, as of a login, a gateway, or another program at the server's port."""
    return _WEB_PAGE.match(body) is not None


def explain_error(status: int | None, body: bytes, path: str = "") -> str:
    """Describe a server's error in one line, with an explanation if the error is known.

    Without a `status`, the error was received in the middle of a reply. `path` is the path of the client's request.
    """
    if not status and is_web_page(body):
        return f"the server answered with {WEB_PAGE_HINT}"
    message = extract_message(body)
    line = f"the server answered {status}" if status else "the server broke off with an error"
    line += f": {message}" if message else ""
    if status in (404, 405):
        for pattern, meaning in PATH_HINTS:
            if re.search(pattern, path):
                return f"{line} - {meaning}"
    for statuses, pattern, meaning in ERROR_HINTS:
        if (status in statuses or (status is None and pattern)) and re.search(pattern, message, re.I | re.S):
            return f"{line} - {meaning}"
    return line


def explain_body(body: bytes) -> list[str]:
    """Describe a body that was received instead of a whole reply although the status reports no error.

    Return an empty list if the body can be a reply.
    """
    try:
        reply = decode_json(body, "replace")
    except ValueError:
        if is_web_page(body):
            return [explain_error(None, body)]
        # Quote nothing that may belong to a reply.
        beginning = body[: 4 * MAX_MESSAGE_CHARS].partition(b"{")[0].decode(errors="replace")
        return [f"the reply is not JSON: {' '.join(beginning.split())[:80] or '{…'}"]
    return [explain_error(None, body)] if isinstance(reply, Mapping) and is_error(reply) else []


def extract_message(body: bytes, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Extract the message of a server's error in one line, from any known form; without JSON, the body's beginning."""
    try:
        error: Any = decode_json(body, "replace")
    except ValueError:
        error = body[: 4 * MAX_MESSAGE_CHARS].decode(errors="replace")
        error = re.sub(r"(?is)<(script|style|title)\b.*?</\1>|<[^>]*>", " ", error)
    for key in ("response", "error", "detail", "message", "msg"):
        if isinstance(error, list) and error:
            error = error[0]
        if isinstance(error, Mapping) and key in error:
            error = error[key]
    if isinstance(error, Mapping) and error:
        error = encode_json(error).decode()
    message = error[: 4 * max_chars] if isinstance(error, str) else ""
    text = " ".join(message.split())
    return text if len(text) <= max_chars else f"{text[:max_chars]} …"


# A possible call that no dialect reads: an offered tool's name next to markup, in a reply in which no call was found.
#
# This is a guess, which is only reported, so that people know where to look when an agent "just stopped".


CONTEXT_CHARS = 32
"""Number of characters that are quoted before and after the name."""
MAX_SEARCHED_CHARS = 1 << 14
"""Number of characters at the end of a reply that are searched."""

_MARKUP_BEFORE = re.compile(r"(?:<[|｜/]?\w{1,24}[|｜]?>|[^\w\s]){0,8}$")
_MARKUP_AFTER = re.compile(r"[^\w\s]{0,3}")
"""Markup next to a name, without words of the model, so that it can be logged."""
_LONG_RUN = re.compile(r"(\s{64})\s+|(`{64})`+")
"""Runs of more than 64 white space characters or backticks, which are shortened because they make the patterns
quadratic."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|<(code|pre|kbd|samp)\b[^<>]*>.{0,400}?</\1>", re.DOTALL)
_STRAIGHT_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
"""Translation of typographic quotation marks, which models write instead of those of JSON."""
_CODE_BLOCK = re.compile(r"(`{3,64}+)[^\n`]*\n((?:(?!\1).)*)(?:\1(?:\s*\Z)?|\Z)", re.DOTALL)
_ARGUMENTS_KEY = r"""["'](?:arguments|parameters|params|args|input|kwargs)["']\s*:"""
_TOOL_NAME = r"(?:(?<![\w.-])|(?<=functions\.))(?:{names})(?![\w-])"
_CALL_FORMS = (
    r"""[<\[{{(@|="'#:>/✿$]\s?{name}["']?\s*[>\](){{}}|:,=@\n]""",  # <read_file>  @@read_file(  "read_file",
    r"""{name}["']?\s*\([^()\n]{{0,200}}[=:"'{{]""",  # read_file(path="a")
    r"""{name}["']?\s*(?:[=-]>|[:=|])?\s*(?:\{{\s*["'\w]|\[\s*[{{"'])""",  # read_file {{"path": "a"}}
    r"""{name}[^\n{{}}]{{0,40}}\n?\s*\{{\s*["']\w+["']\s*:""",  # read_file with arguments {{"path": "a"}}
    r"""{name}\s*\n?\s*<(\w[\w.-]*)>[^<]*</""",  # read_file <path>a</path>
    r"""<[^<>\n]{{0,60}}{name}[^<>\n]{{0,200}}>""",  # <call read_file path="a">
    # <run>read_file a.py</run>
    r"""<(?P<tag>\w[\w.-]{{2,60}})(?:\s[^<>\n]{{0,200}})?>\s*{name}\s[^<]*</(?P=tag)>(?=\s*(?:<|\n|\Z))""",
    # <tool>read_file</tool><args>
    r"""<(?P<of>\w[\w.-]{{0,60}})(?:\s[^<>\n]{{0,200}})?>\s*{name}\s*</(?P=of)>\s*<(?!(?P=of)\b)\w""",
    r"""\[\[?[^\[\]\n]{{0,60}}{name}[^\[\]\n]{{0,200}}[=:{{"'][^\[\]\n]{{0,200}}\]""",  # [call read_file path=a]
)
"""Patterns of a call in text outside code."""
_NAME_BEFORE_BLOCK = (
    r"""(?:\A|\n)(?:[^\n]*>|[^\w\n]*(?:\w+[^\w\n]+){{0,2}}){name}[^\w\n]*\n\s*"""
    r"""(?P<fence>`{{3,}})[^\n`]*\n\s*\{{(?:(?!\n\s*(?P=fence))[\s\S])*\n\s*(?P=fence)(?:<[^\n]*)?\s*`*\s*\Z""",
)
"""Pattern of a tool's name at the end of a line of markup or of at most three words, followed by an object in a code
block that ends the reply."""
_MARKED_FORMS = (
    # <|tool_call_start|>[read_file(
    r"""<[^<>\n]{{0,60}}(?i:[|｜]|tool|call|func|invoke)[^<>\n]{{0,60}}>[^`]{{0,60}}{name}""",
    # <a:invoke name="read_file">
    r"""<[^<>\n]{{0,60}}(?i:[|｜]|tool|call|func|invoke)[^<>\n]{{0,60}}[=:"'\s]{name}["']?[\s/>]""",
    # functools[{"name": "read_file", and on two lines -> tool/function_call
    r"""(?:\w|function_call\s{{1,9}})\[\s{{0,40}}\{{\s{{0,40}}"name":\s{{0,9}}"{name}\"""",
    r"""(?:\[TOOL_CALLS?\]|\[Calling tool:|✿FUNCTION✿)[^`]{{0,40}}{name}""",
)
"""Patterns of a call in any code block: with markup that only calls have."""
_JSON_FORMS = (
    r"""["']{name}["']\s*[,}}]\s*(?:"\w+":\s*"[^"\n]*",\s*)?""" + _ARGUMENTS_KEY,
    _ARGUMENTS_KEY + r"""[^`]{{0,400}}["']{name}["']""",
)
"""Patterns of a call as JSON."""
_FINAL_JSON_BLOCK = re.compile(
    r"\n[ \t]{0,64}```(?:json|tool_calls?|tool)?[ \t]{0,64}\n\s*\{[^`]*\}\s*```\s*\Z", re.IGNORECASE
)
"""Pattern of a closed code block that contains an object and ends the reply."""
LAST_BLOCK_ADVICE = (
    "a code block that ends the reply: `blocks: last` of the model's profile or `vtc_blocks=last` reads it"
)
"""Advice for a call in such a block."""
_BLOCK_FORMS = (
    *_JSON_FORMS,
    r"""<(?:[\w:.-]+[\s=]+)?(?:name\s*=\s*)?["']?{name}["']?\s*/?>""",
    *_MARKED_FORMS,
)
"""Patterns of a call in a code block that ends the reply. They are narrow, because most names in code are functions."""


class PossibleCall(NamedTuple):
    """A possible call in a reply in which no call was read."""

    tool: str
    """The tool's name as the reply spells it."""
    begins: str
    """The name with the markup next to it, without arguments: `@@read_file(`."""
    text: str
    """The possible call and its context, shortened."""
    advice: str = ""
    """The setting that makes VTC read it, if known."""


def find_possible_call(text: str, tools: Iterable[str]) -> PossibleCall | None:
    """Find a possible call of one of the tools; None if there is none.

    Code is skipped, because names in it are examples. There are two exceptions: a code block that ends the reply,
    because models write calls there, and markup that only calls have, in any block.
    """
    text = _shorten_runs(text[-MAX_SEARCHED_CHARS:].translate(_STRAIGHT_QUOTES))
    known = sorted((name for name in tools if name and name in text), key=len, reverse=True)
    if not known:
        return None
    name = _TOOL_NAME.format(names="|".join(map(re.escape, known)))
    blocks = [(block[2], block.end() == len(text)) for block in _CODE_BLOCK.finditer(text)]
    if blocks and _FINAL_JSON_BLOCK.search(text) and (last := _find_form(blocks[-1][0], _JSON_FORMS, name)):
        return last._replace(advice=LAST_BLOCK_ADVICE)
    match = _find_form(_shorten_runs(_CODE.sub(" ", text)), _CALL_FORMS, name) or _find_form(
        text, _NAME_BEFORE_BLOCK, name
    )
    in_blocks = (_find_form(block, _BLOCK_FORMS if is_last else _MARKED_FORMS, name) for block, is_last in blocks)
    return match or next(filter(None, in_blocks), None)


def _shorten_runs(text: str) -> str:
    return _LONG_RUN.sub(r"\1\2", text)


def _find_form(text: str, forms: Iterable[str], name: str) -> PossibleCall | None:
    match = re.search("|".join(form.format(name=name) for form in forms), text)
    if not match:
        return None
    start, end = (
        max(0, match.start() - CONTEXT_CHARS),
        min(match.end(), match.start() + 2 * CONTEXT_CHARS) + CONTEXT_CHARS,
    )
    shown = " ".join(text[start:end].split())
    tool = re.compile(name).search(text, match.start(), match.end())
    assert tool  # because each form contains the name
    before = _MARKUP_BEFORE.search(text[max(0, tool.start() - CONTEXT_CHARS) : tool.start()])
    after = _MARKUP_AFTER.match(text, tool.end())
    begins = f"{before[0] if before else ''}{tool[0]}{after[0] if after else ''}"
    return PossibleCall(tool[0], begins, f"{'…' * (start > 0)}{shown}{'…' * (end < len(text))}")
