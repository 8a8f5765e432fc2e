"""Render an untrusted chat template: a separate program with limits on its time and memory.

    {"source": …, "fields": [{"messages": …}, …], "seconds": …, "bytes": …} -> [{"text": …}, {"refused": …}, …]

The program parses a JSON object from standard input and writes a JSON list. It is run as a file and imports nothing of
VTC. The operating system ends the process at the time limit. The memory limit applies on Linux only, because macOS and
Windows do not enforce one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

MAX_RENDERED_CHARS = 1 << 18
"""Maximum number of characters of a rendered conversation; rendering stops beyond it."""
MAX_RANGE_LENGTH = 1000
"""Maximum length of a range; longer ones are cut."""
MAX_FACTOR = 10_000
"""Largest factor of a multiplication; it also limits repeated strings."""


class TemplateRefusal(Exception):
    """Raised when the template calls `raise_exception` or exceeds a limit."""


class Generation(Extension):
    """The tag of Transformers around the model's text, which changes nothing in a prompt."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> Node | list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Environment(SandboxedEnvironment):
    """A sandbox that rejects powers, and multiplications by large factors.

    Some templates change lists, which is harmless because each conversation is rendered from its own copy.
    """

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        factors = [number for number in (left, right) if isinstance(number, int | float)]
        if operator == "**" or any(abs(number) > MAX_FACTOR for number in factors):
            raise TemplateRefusal("it computes too much")
        return super().call_binop(context, operator, left, right)


def render_template(source: str, fields: list[Mapping[str, Any]]) -> Iterator[Mapping[str, str]]:
    """Render a template with each of these contexts; yield the text, or the error."""
    try:
        template = _build_environment().from_string(source)
    except (TemplateError, RecursionError) as error:
        yield from ({"refused": str(error)} for _ in fields)
        return
    for context in fields:
        try:
            yield {"text": "".join(_limit_length(template.generate(**context, bos_token="", eos_token="")))}
        except MemoryError:
            raise
        except (TemplateError, TemplateRefusal) as error:
            yield {"refused": str(error)}
        except Exception as error:  # for example TypeError, if the template adds a string to a list
            yield {"refused": f"{type(error).__name__}: {error}"}


def _build_environment() -> Environment:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = _render_json
    environment.globals |= {
        "raise_exception": _raise_refusal,
        "strftime_now": lambda _: "2026-01-01",
        "range": lambda *of: range(*of)[:MAX_RANGE_LENGTH],
    }
    return environment


def _render_json(
    value: Any, indent: int | None = None, separators: Any = None, *, sort_keys: bool = False, **_: Any
) -> str:
    if isinstance(value, Iterator):  # a filter's result
        value = [*value]
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_refusal(message: object) -> None:
    raise TemplateRefusal(str(message))


def _limit_length(pieces: Iterator[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MAX_RENDERED_CHARS:
            raise TemplateRefusal("it writes without end")
        yield piece


def _limit_process(seconds: int, size: int) -> None:
    """Limit the CPU time (seconds) and the memory (bytes) of this process, if the system supports it."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    for limit, maximum in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (maximum, maximum))


def main() -> None:
    """Render the template of the request on standard input; write null if the memory is exhausted."""
    request = json.load(sys.stdin.buffer)
    _limit_process(request["seconds"], request["bytes"])
    try:
        texts = [*render_template(request["source"], request["fields"])]
    except MemoryError:
        texts = None
    sys.stdout.write(json.dumps(texts))


if __name__ == "__main__":
    main()
