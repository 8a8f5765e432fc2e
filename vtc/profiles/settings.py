"""What the user settled by options, in the place of what profiles would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from vtc.profiles.document import nearest

CLIENT_PATTERNS = ("cline", "kilo", "roo")
"""Parts of the user agents of clients that read calls out of the text, when they declare no tools."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user set; an empty string or `auto` leaves the choice to the profiles."""

    client: str = ""
    model: str = ""
    server: str = ""
    upstream_api: tuple[str, ...] = ()
    """The APIs that the server speaks, the one for clients of any other first; `same` is that of each client."""
    models: tuple[str, ...] = ()
    """`glob=name`: what the server is asked for in the place of a model; the first that fits counts."""
    tools: Literal["auto", "native", "prompt"] = "auto"
    dialect: str = ""
    lenient: Literal["auto", "on", "off"] = "auto"
    unknown_tools: Literal["auto", "allow", "text", "drop"] = "auto"
    echo: Literal["auto", "text", "steer", "call"] = "auto"
    constrain: Literal["off", "required", "auto"] = "required"
    """When servers are told to decode by a grammar: never, where a call is demanded, or also in free text."""
    client_patterns: tuple[str, ...] = CLIENT_PATTERNS
    max_call_bytes: int = 1 << 20

    def chosen(self) -> dict[str, Any]:
        """What differs from the defaults, as plain data: kept with an exchange, so that it can be replayed."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}


class UnknownName(ValueError):
    """A setting names a profile that does not exist; `setting` is the setting."""

    def __init__(self, setting: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no {setting} {name!r}{nearest(name, known)}; `vtc profiles` lists all")
        self.setting = setting
