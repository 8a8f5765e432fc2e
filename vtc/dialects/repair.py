"""The repairs of calls by name, and what each of them means.

A call that needed one says so in its report. docs/repairs.md lists them, and a test holds the page to this list.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Self


class Repair(StrEnum):
    """One repair: how reports name it, and a sentence about it. Of some there is one for each parameter (`of`)."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        repair = str.__new__(cls, name)
        repair._value_ = name
        repair.meaning = meaning
        return repair

    def of(self, parameter: str) -> str:
        """The repair of one parameter: `untyped:count`."""
        return f"{self}:{parameter}"

    # Closing tags
    MISSING_CLOSER = "missing-closer", "The call's closing tag is missing where the reply ends or the next call begins."
    WRONG_CLOSER = "wrong-closer", "Another closing tag stands where the call's should."
    CORRUPT_CLOSER = "corrupt-closer", "Of the call's closing tag only a part is there, or it is garbled."
    SELF_CLOSING = "self-closing", "The call's opening tag closes itself, and the call has no parameters."
    DOUBLED_CLOSER = "doubled-closer", "A parameter's closing tag stands there several times and counts once."
    DOUBLED_OPENER = "doubled-opener", "A parameter's opening tag stands there twice and counts once."
    UNPAIRED_OPENER = "unpaired-opener", "An opening tag in a value pairs with no closing tag; it is text."
    ORPHAN_CLOSER = "orphan-closer", "A parameter's closing tag stands there that nothing opened."
    MISSING_PARAMETER_CLOSER = (
        "missing-parameter-closer",
        "A parameter's closing tag is missing before the next parameter or the end of the call.",
    )
    WRONG_PARAMETER_CLOSER = "wrong-parameter-closer", "A parameter ends with a closing tag of another name."
    CORRUPT_PARAMETER_CLOSER = "corrupt-parameter-closer", "Of a parameter's closing tag only a part is there."

    # Parameters between tags
    UNDECLARED = "undeclared", "The tool declares no parameter of this name; it is passed on as an argument."
    REPEATED = "repeated", "The parameter is given several times with one value."
    UNTYPED = "untyped", "The value fits no type that the tool's schema allows; it stays text."
    BROKEN_VALUE = (
        "broken-value",
        "The JSON of a value lacks marks of structure, or has too many; it was put right as that of a whole call is.",
    )
    ATTRIBUTES = "attributes", "The parameters stand in the opening tag, as attributes."
    CDATA = (
        "cdata",
        "A value stands in a CDATA section, where it cannot be text or its markup is not the dialect's own.",
    )
    ESCAPED_TEXT = "escaped-text", "Quotes and line breaks are escaped once too often; they are read as meant."

    # Objects
    CODE_FENCE = "code-fence", "The fence of a Markdown code block stands inside of the call."
    EXTRA_BRACE = "extra-brace", "More braces are closed than were opened."
    EMPTY_OBJECT = "empty-object", "An empty object stands before the arguments of a tool that requires some."
    MARKUP_AROUND = "markup-around", "Tags or the word `json` stand before or after the object of a server's own call."
    MARKUP_IN_VALUE = (
        "markup-in-value",
        "A closing marker of special tokens, or a part of it, stands at the end of a value of a server's own call.",
    )
    NAME_BEFORE = "name-before", "The name or the id of a server's own call stands before its arguments."
    SNAPSHOTS = (
        "snapshots",
        "The arguments of a server's own call come several times, each time with more of them; the last ones count.",
    )
    NO_ARGUMENTS = "no-arguments", "Nothing is written where the arguments should be; the call has none."
    DOUBLED_BRACES = "doubled-braces", "The object's braces stand there twice, as in the template of a prompt."
    ARRAY_OF_CALLS = "array-of-calls", "A list of calls stands where one call should."
    SEVERAL_OBJECTS = "several-objects", "Several objects stand where one call should; each is a call."
    NAME_KEY = "name-key", "The tool's name stands under another key than the dialect's, or is the key itself."
    ARGUMENTS_KEY = (
        "arguments-key",
        "The arguments stand under another key than the dialect's: `args`, `input`, `kwargs`.",
    )
    FLAT_ARGUMENTS = "flat-arguments", "The arguments stand beside the name; each key is a parameter of the tool."
    ARGUMENTS_ENCODED_TWICE = "arguments-encoded-twice", "The arguments are a JSON string that holds the object."
    ESCAPED_JSON = "escaped-json", "The whole object is escaped as if it stood in a string."
    ARGUMENTS_OBJECT = (
        "arguments-object",
        "The arguments of a Python call are written as an object, with colons.",
    )
    PYTHON_LITERAL = "python-literal", "The object is written as Python writes it: single quotes, `True`, `None`."
    RAW_NEWLINE = "raw-newline", "A line break stands unescaped in a string of a Python call."

    # JSON
    JSON_CUT = "json-cut", "The closing quotes, brackets or braces are missing at the end of the object."
    JSON_MISSING_COMMA = "json-missing-comma", "A comma is missing between two entries."
    JSON_MISSING_COLON = "json-missing-colon", "The colon after a key is missing."
    JSON_MISSING_QUOTE = "json-missing-quote", "A quote of a key or of a value is missing, or both are."
    JSON_INNER_QUOTES = (
        "json-inner-quotes",
        "Quotes in a string are not escaped; it ends where structure follows that leads to a whole call.",
    )
    JSON_TYPOGRAPHIC_QUOTES = (
        "json-typographic-quotes",
        "Quotation marks of typography stand around keys or values, which hold none themselves.",
    )
    JSON_COMMENT = "json-comment", "A comment stands between the entries; it is left out."
    JSON_BAD_ESCAPE = "json-bad-escape", "A backslash stands in a string that escapes nothing; it is one of the text's."
    JSON_CONTROL_CHARACTER = "json-control-character", "A line break or a tabulator stands unescaped in a string."
    JSON_TRAILING_COMMA = "json-trailing-comma", "A comma stands after the last entry."
    JSON_PYTHON_LITERAL = "json-python-literal", "`True`, `False` or `None` stands for `true`, `false` or `null`."

    # Where it stands
    TOOL_NAME = "tool-name", "The name has a prefix, a number, markup, or is repeated; it means an offered tool."
    TOOL_BY_ARGUMENTS = (
        "tool-by-arguments",
        "A bare id stands for the name; only one offered tool takes these arguments.",
    )
    CALL_IN_NAME = "call-in-name", "The text of the call stands in the name of a server's own call."
    WRITTEN_TWICE = "written-twice", "The arguments stand there several times, each time the same."
    SOLE_PARAMETER = "sole-parameter", "The arguments are the text of the one parameter that the tool requires."
    ONLY_PARAMETER = (
        "only-parameter",
        "The one argument has no name or one that is not declared; it is the one parameter that the tool declares.",
    )
    PARAMETER_NAME = "parameter-name", "The name of a parameter has markup after it."
    TYPED = "typed", "A number, a list or the like is written as text, and the tool's schema allows no text there."
    UNKNOWN_TOOL = "unknown-tool", "No tool of this name is offered; the call leaves as written."
    CALL_IN_REASONING = "call-in-reasoning", "The call was written inside of the reasoning; there is no other."


def is_whole_call(repairs: Collection[str], *, in_json: bool) -> bool:
    """True if a call needed none of these repairs, or lacks only the closer after JSON that is whole."""
    return not repairs or (in_json and {*repairs} == {Repair.MISSING_CLOSER})
