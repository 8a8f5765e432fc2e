"""Patterns of the text that may follow arguments which no closing tag ends."""

from __future__ import annotations

from vtc.dialects.syntax.scan import Scan

END_OF_LINE = Scan(
    r"(?P<hold>(?:[ \t\r]{0,256}|\}\s{0,256})\Z)|(?P<tail>[ \t\r]{0,256}(?=\n))",
    r"(?P<tail>[ \t\r]{0,256}(?:(?=\n)|\Z))|(?P<extra0>\}(?=\s{0,256}\Z))",
)
"""The end of the line; with a brace too many, the end of the reply: elsewhere it may stand in a string of the JSON."""
NOTHING = Scan("(?P<tail>)", "(?P<tail>)")
"""Anything: what ends there shows its own end."""
_GOES_ON = (
    r"(?:[ \t]{0,256}[\"']|\}\s{0,256}[^\s\]},<]|[^\n\r{<\[\"']{1,400}+[\"'][ \t]{0,256}[},\]]|\[(?![A-Z/])"
    r"|`(?![\s.,;:)]|\Z)|(?!functions\.|\w{1,128}\[|call:|to=|commentary)[\w$\\/:.\#+=@&*!?~^%{(-]|[^\x00-\x7f✿])"
)
_HELD = r"(?P<hold>(?:[^\n\r{<\[\"']{0,400}\[?|[^\n\r{<\[\"']{1,400}[\"'][ \t]{0,256}|\}\s{0,256})\Z)"
NO_QUOTE = Scan(rf"{_HELD}|(?P<tail>)(?!{_GOES_ON})", rf"(?P<tail>)(?!{_GOES_ON})")
"""Anything but what may belong to a string of the JSON that has a quote which is not escaped."""
