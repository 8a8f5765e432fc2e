"""Tell where the reply was cut off, whatever its finish reason says: within a number or a name, or before a value.

{"command": "ls", "timeout": 1        of 1200, perhaps
{"command": "ls", "time               a name
{"name": "typed", "arguments": {      nothing of the arguments was written yet
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.reading.repairs import LEAST_LETTERS, is_partial_closer, without_corrupt_closer

_CUT = re.compile(r"[-+.\w]\Z|[{\[,:]\s*\Z")
"""The end of JSON that goes on: no white space or bracket follows its last word, or no value its last mark."""
_OF_JSON = "[]{}(), "


def json_closers(body: str, closers: Sequence[str]) -> Sequence[str] | None:
    """List the closing tags that may follow a JSON body that is not whole; None if it is cut off within itself.

    Where all of the text is JSON that ends too early, no bracket of it closes the section.
    """
    one = JsonBody()
    at = one.feed(body, 0, final=True)
    if one.done:
        return closers
    if not one.error:
        closers = [closer for closer in closers if closer.strip(_OF_JSON)]
    if one.in_string or any(closer in body for closer in closers) or without_corrupt_closer(body, closers)[1]:
        return closers  # it ends there, or in a string, which is another matter
    stump, behind = body[at:].strip(), body[:at].rstrip()
    if behind.endswith(('"', "}", "]")) and len(stump) >= LEAST_LETTERS and is_partial_closer(stump, closers):
        return closers  # behind a value no name begins
    return None if _CUT.search(body) else closers
