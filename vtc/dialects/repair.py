"""The names and explanations of all repairs of calls.

The report of a call lists its repairs. docs/repairs.md is generated from this list, as a test checks.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Self


class Repair(StrEnum):
    """One repair: its name in reports and an explanation. Some repairs name the parameter that they apply to (`of`)."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        repair = str.__new__(cls, name)
        repair._value_ = name
        repair.meaning = meaning
        return repair

    def of(self, parameter: str) -> str:
        """Return the name of the repair for one parameter: `untyped:count`."""
        return f"{self}:{parameter}"

    # Closing tags
    MISSING_CLOSER = (
        "missing-closer",
        "The call's closing tag is missing at the end of the reply or before the next call.",
    )
    WRONG_CLOSER = "wrong-closer", "The call ends with another closing tag than its own."
    CORRUPT_CLOSER = "corrupt-closer", "The call's closing tag is incomplete or garbled."
    SELF_CLOSING = "self-closing", "The call's opening tag is self-closing, and the call has no parameters."
    DOUBLED_CLOSER = "doubled-closer", "A parameter's closing tag is repeated; it counts once."
    DOUBLED_OPENER = "doubled-opener", "A parameter's opening tag is repeated; it counts once."
    UNPAIRED_OPENER = "unpaired-opener", "An opening tag in a value has no closing tag; it is text."
    ORPHAN_CLOSER = "orphan-closer", "A parameter's closing tag has no opening tag."
    MISSING_PARAMETER_CLOSER = (
        "missing-parameter-closer",
        "A parameter's closing tag is missing before the next parameter or the end of the call.",
    )
    WRONG_PARAMETER_CLOSER = "wrong-parameter-closer", "A parameter ends with a closing tag of another name."
    CORRUPT_PARAMETER_CLOSER = "corrupt-parameter-closer", "A parameter's closing tag is incomplete or garbled."

    # Parameters between tags
    UNDECLARED = "undeclared", "The tool declares no parameter of this name; it is passed on as an argument."
    REPEATED = "repeated", "The parameter is given several times with the same value."
    UNTYPED = "untyped", "The value fits no type of the tool's schema; it stays text."
    BROKEN_VALUE = (
        "broken-value",
        "The JSON of a value has missing or extra punctuation; it is repaired like the JSON of a call.",
    )
    ATTRIBUTES = "attributes", "The parameters are attributes of the opening tag."
    CDATA = (
        "cdata",
        "A value is in a CDATA section, although it cannot be text or the dialect has no such sections.",
    )
    ESCAPED_TEXT = "escaped-text", "Quotes and line breaks are escaped once too often; the extra escapes are removed."

    # Objects
    CODE_FENCE = "code-fence", "The fence of a Markdown code block is inside the call."
    EXTRA_BRACE = "extra-brace", "There are more closing braces than opening ones."
    EMPTY_OBJECT = "empty-object", "An empty object precedes the arguments of a tool that requires some."
    MARKUP_AROUND = "markup-around", "Tags or the word `json` precede or follow the object of a native tool call."
    MARKUP_IN_VALUE = (
        "markup-in-value",
        "A value of a native tool call ends with a closing special token or a part of one.",
    )
    NAME_BEFORE = "name-before", "The name or the id of a native tool call precedes its arguments."
    SNAPSHOTS = (
        "snapshots",
        "The arguments of a native tool call are sent as growing snapshots; the last one counts.",
    )
    NO_ARGUMENTS = "no-arguments", "The arguments are missing; the call has none."
    DOUBLED_BRACES = "doubled-braces", "The object's braces are doubled, as in a prompt template."
    ARRAY_OF_CALLS = "array-of-calls", "A list of calls is in the place of one call."
    SEVERAL_OBJECTS = "several-objects", "Several objects are in the place of one call; each is a call."
    NAME_KEY = "name-key", "The tool's name has another key than the dialect's, or is the key itself."
    ARGUMENTS_KEY = (
        "arguments-key",
        "The arguments have another key than the dialect's: `args`, `input`, `kwargs`.",
    )
    FLAT_ARGUMENTS = (
        "flat-arguments",
        "The arguments are next to the name, not in an object; each key is a parameter of the tool.",
    )
    ARGUMENTS_ENCODED_TWICE = "arguments-encoded-twice", "The arguments are a JSON string that contains the object."
    ESCAPED_JSON = "escaped-json", "The whole object is escaped like the content of a string."
    ARGUMENTS_OBJECT = (
        "arguments-object",
        "The arguments of a Python call are an object, with colons.",
    )
    PYTHON_LITERAL = "python-literal", "The object is in Python's notation: single quotes, `True`, `None`."
    RAW_NEWLINE = "raw-newline", "A string of a Python call contains an unescaped line break."

    # JSON
    JSON_CUT = "json-cut", "The closing quotes, brackets or braces are missing at the end of the object."
    JSON_MISSING_COMMA = "json-missing-comma", "A comma is missing between two entries."
    JSON_MISSING_COLON = "json-missing-colon", "The colon after a key is missing."
    JSON_MISSING_QUOTE = "json-missing-quote", "One or both quotes of a key or a value are missing."
    JSON_INNER_QUOTES = (
        "json-inner-quotes",
        "Quotes in a string are not escaped; the string ends at the quote that makes the call complete.",
    )
    JSON_TYPOGRAPHIC_QUOTES = (
        "json-typographic-quotes",
        "Keys or values are in typographic quotation marks, and contain none themselves.",
    )
    JSON_COMMENT = "json-comment", "A comment is between the entries; it is dropped."
    JSON_BAD_ESCAPE = "json-bad-escape", "A backslash in a string escapes nothing; it is part of the text."
    JSON_CONTROL_CHARACTER = "json-control-character", "A string contains an unescaped line break or tab."
    JSON_TRAILING_COMMA = "json-trailing-comma", "A comma follows the last entry."
    JSON_PYTHON_LITERAL = "json-python-literal", "`True`, `False` or `None` is used for `true`, `false` or `null`."

    STRING_MARKERS = (
        "string-markers",
        "Markers of strings or commas are missing, or quotes are Python's; the tool's schema shows where a value ends.",
    )

    # Names and places
    TOOL_NAME = (
        "tool-name",
        "The name has a prefix, a number or markup, is repeated, or lacks its MCP server; it denotes an offered tool.",
    )
    TOOL_BY_ARGUMENTS = (
        "tool-by-arguments",
        "The name is a bare id; only one offered tool accepts these arguments.",
    )
    CALL_IN_NAME = "call-in-name", "The name or the arguments of a native tool call contain the text of the call."
    WRITTEN_TWICE = "written-twice", "The same arguments are repeated."
    SOLE_PARAMETER = "sole-parameter", "The arguments are the text of the only parameter that the tool requires."
    ONLY_PARAMETER = (
        "only-parameter",
        "The only argument has no declared name; it is the only parameter of the tool.",
    )
    PARAMETER_NAME = "parameter-name", "Markup follows the name of a parameter."
    TYPED = "typed", "A number, a list or another value is written as text, but the tool's schema allows no text."
    UNKNOWN_TOOL = "unknown-tool", "No tool of this name is offered; the call is forwarded as written."
    STRAY_WORD = "stray-word", "A word alone on the line before the call, which Claude writes by mistake, is removed."
    CALL_IN_REASONING = "call-in-reasoning", "The call is inside the reasoning, and the reply has no other."


def is_whole_call(repairs: Collection[str], *, in_json: bool) -> bool:
    """True if a call needed no repair, or if its JSON is complete and only lacks its closer, or is in a list."""
    return not repairs or (in_json and {*repairs} <= {Repair.MISSING_CLOSER, Repair.ARRAY_OF_CALLS})
