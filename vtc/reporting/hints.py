"""Explain a server's error to a person who has just set up VTC, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vtc.apis.fields import is_error
from vtc.json_text import decode

MAX_MESSAGE_CHARS = 240
"""Characters of a server's message that are repeated."""

ERROR_HINTS: tuple[tuple[tuple[int, ...], str, str], ...] = (
    # vLLM; Ollama; llama.cpp; the rest is how others say it.
    (
        (400, 404, 422, 500, 501),
        r"tool choice requires|does not support (tools|function)|tools param requires|knows no tools"
        r"|tools?( calling| use)? (is|are) not supported|no endpoints found that support tool",
        "the server refuses `tools`: let VTC write them into the prompt with `--tools prompt` (option vtc_tools)",
    ),
    (
        (400, 404),
        r"model\b.{0,80}(not found|does not exist|not exist|no such|try pulling)|unknown model",
        "the server has no model of this name (GET /v1/models lists its own): `vtc run URL --model NAME` asks for "
        'that one in the place of all it lacks, `--set "vtc_models=claude-*=NAME"` in the place of some',
    ),
    (
        (401, 403),
        "",
        "the server does not accept the client's API key; VTC passes it on as it came, and lends a client that sends "
        "none one from the environment (key_env in the server's profile)",
    ),
    (
        (400, 413, 422),
        r"context (length|size|window)|maximum context|too many tokens|prompt is too long|exceed.{0,40}context",
        "the conversation is longer than the model's context",
    ),
    (
        (404, 405),
        "",
        "the server has nothing at this path: does it speak this API?",
    ),
    (  # nginx; Go
        (400,),
        r"HTTP request (was sent )?to (an )?HTTPS",
        "the server speaks https, and VTC's URL of it says http: start VTC with https://",
    ),
    ((429,), "", "the server takes no more requests now"),
)
"""By status, a word in the message, what it means; the first that fits."""


PATH_HINTS = (
    (r"/v1/+v1/", "the path begins with /v1 twice: leave /v1 out of the client's base URL"),
    (r"^/(chat/completions|responses|messages)\b", "the path lacks /v1: put it at the end of the client's base URL"),
)
"""What is wrong with a path at which a server has nothing."""


def explain_error(status: int | None, body: bytes, path: str = "") -> str:
    """Say in one line what a server answered in place of a reply, and what that means if it is known.

    Without a status the error stands in the place of the rest of a reply. `path` is the one that the client asked.
    """
    message = extract_message(body)
    line = f"the server answered {status}" if status else "the server broke off with an error"
    line += f": {message}" if message else ""
    if status in (404, 405) and (wrong := [meaning for pattern, meaning in PATH_HINTS if re.search(pattern, path)]):
        return f"{line} - {wrong[0]}"
    for statuses, pattern, meaning in ERROR_HINTS:
        if (status in statuses or (status is None and pattern)) and re.search(pattern, message, re.I | re.S):
            return f"{line} - {meaning}"
    return line


def explain_body(body: bytes) -> list[str]:
    """Say what a server sent in place of a whole reply, under a status that tells of no error, if that is known."""
    try:
        reply = decode(body, "replace")
    except ValueError:
        # Of what resembles a reply nothing is told.
        beginning = body[: 4 * MAX_MESSAGE_CHARS].partition(b"{")[0].decode(errors="replace")
        return [f"the reply is no JSON: {' '.join(beginning.split())[:80] or '{…'}"]
    return [explain_error(None, body)] if isinstance(reply, Mapping) and is_error(reply) else []


def extract_message(body: bytes, most: int = MAX_MESSAGE_CHARS) -> str:
    """Return the text of a server's error in whichever form, on one line; of what is no JSON the beginning."""
    try:
        error: Any = decode(body, "replace")
    except ValueError:
        error = body[: 4 * MAX_MESSAGE_CHARS].decode(errors="replace")
        error = re.sub(r"(?is)<(script|style|title)\b.*?</\1>|<[^>]*>", " ", error)
    for key in ("response", "error", "detail", "message", "msg"):
        if isinstance(error, list) and error:
            error = error[0]
        if isinstance(error, Mapping) and key in error:
            error = error[key]
    words = str(error)[: 4 * most] if isinstance(error, str | Mapping) and error else ""
    text = " ".join(words.split())
    return text if len(text) <= most else f"{text[:most]} …"


# A possible call that no dialect reads: an offered tool's name next to markup, in a reply in which no call was found.
#
# Only a guess, and only told: it says where to look when an agent "just stopped".


CONTEXT_CHARS = 32
"""Characters that are shown before and after the name."""
MAX_SEARCHED_CHARS = 1 << 14
"""Characters at the end of a reply that are looked at."""

_MARKUP_BEFORE = re.compile(r"(?:<[|｜/]?\w{1,24}[|｜]?>|[^\w\s]){0,8}$")
_MARKUP_AFTER = re.compile(r"[^\w\s]{0,3}")
"""Markup next to a name: what holds no word of the model's, so that it may stand in a log."""
_LONG_RUN = re.compile(r"(\s{64})\s+|(`{64})`+")
"""White space and backticks beyond these: in the expressions each of them would be looked at again from each."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|<(code|pre|kbd|samp)\b[^<>]*>.{0,400}?</\1>", re.DOTALL)
_STRAIGHT_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
"""Quotation marks that models write for those of JSON."""
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
"""What a call of a tool may look like in text."""
_NAME_BEFORE_BLOCK = (
    r"""(?:\A|\n)(?:[^\n]*>|[^\w\n]*(?:\w+[^\w\n]+){{0,2}}){name}[^\w\n]*\n\s*"""
    r"""(?P<fence>`{{3,}})[^\n`]*\n\s*\{{(?:(?!\n\s*(?P=fence))[\s\S])*\n\s*(?P=fence)(?:<[^\n]*)?\s*`*\s*\Z""",
)
"""A tool's name at the end of a line of markup or of three words, and an object in a block that ends the reply."""
_MARKED_FORMS = (
    # <|tool_call_start|>[read_file(
    r"""<[^<>\n]{{0,60}}(?i:[|｜]|tool|call|func|invoke)[^<>\n]{{0,60}}>[^`]{{0,60}}{name}""",
    # <a:invoke name="read_file">
    r"""<[^<>\n]{{0,60}}(?i:[|｜]|tool|call|func|invoke)[^<>\n]{{0,60}}[=:"'\s]{name}["']?[\s/>]""",
    r"""(?:\[TOOL_CALLS?\]|\[Calling tool:|✿FUNCTION✿)[^`]{{0,40}}{name}""",
)
"""The same in any code block: with markup that only calls have."""
_JSON_FORMS = (
    r"""["']{name}["']\s*[,}}]\s*(?:"\w+":\s*"[^"\n]*",\s*)?""" + _ARGUMENTS_KEY,
    _ARGUMENTS_KEY + r"""[^`]{{0,400}}["']{name}["']""",
)
"""A call as JSON."""
_FINAL_JSON_BLOCK = re.compile(
    r"\n[ \t]{0,64}```(?:json|tool_calls?|tool)?[ \t]{0,64}\n\s*\{[^`]*\}\s*```\s*\Z", re.IGNORECASE
)
"""A closed code block with an object that ends a reply."""
LAST_BLOCK_ADVICE = (
    "a code block that ends the reply: `blocks: last` of the model's profile or `vtc_blocks=last` reads it"
)
"""What is done about it."""
_BLOCK_FORMS = (
    *_JSON_FORMS,
    r"""<(?:[\w:.-]+[\s=]+)?(?:name\s*=\s*)?["']?{name}["']?\s*/?>""",
    *_MARKED_FORMS,
)
"""The same in a code block that ends a reply: there most names are those of functions."""


class PossibleCall(NamedTuple):
    """What looks like a call in a reply in which none was read."""

    tool: str
    """The name of the tool, as it stands there."""
    begins: str
    """The name with the markup next to it, and nothing that may be an argument: `@@read_file(`."""
    text: str
    """All of it as far as it is short, with what stands around."""
    advice: str = ""
    """What reads it, if that is known."""


def find_possible_call(text: str, tools: Iterable[str]) -> PossibleCall | None:
    """Find what looks like a call of one of the tools; None if nothing does.

    Code is passed over, as there a name is an example; but for a block that ends the reply, where models write calls,
    and for the markup of calls in any block.
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
    assert tool  # each form has the name in it
    before = _MARKUP_BEFORE.search(text[max(0, tool.start() - CONTEXT_CHARS) : tool.start()])
    after = _MARKUP_AFTER.match(text, tool.end())
    begins = f"{before[0] if before else ''}{tool[0]}{after[0] if after else ''}"
    return PossibleCall(tool[0], begins, f"{'…' * (start > 0)}{shown}{'…' * (end < len(text))}")
