"""Renders a chat template that may be anything: a program of its own, with bounds on its time and memory.

    {"source": …, "fields": [{"messages": …}, …], "seconds": …, "bytes": …} -> [{"text": …}, {"refused": …}, …]

It reads one line of JSON and writes one; it is run as a file, and imports nothing of VTC. The system ends it beyond its
time. Its memory is bounded where the system can do that, as Linux does; macOS and Windows do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_RENDERED = 1 << 18
"""Characters of a rendered conversation; a template that writes more is not looked at further."""
MOST_LOOPS = 1000
"""Rounds of one loop over a range."""
MOST_TIMES = 10_000
"""By which a template may multiply."""


class TemplateRefusal(Exception):
    """The template raised an error of its own."""


class Environment(ImmutableSandboxedEnvironment):
    """Renders chat templates; none computes a product or a power without end."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        times = [number for number in (left, right) if isinstance(number, int | float)]
        if operator == "**" or any(abs(number) > MOST_TIMES for number in times):
            raise TemplateRefusal("it computes too much")
        return super().call_binop(context, operator, left, right)


def render_template(source: str, fields: list[Mapping[str, Any]]) -> Iterator[Mapping[str, str]]:
    """Render a template with each of these fields: the text, or why there is none."""
    try:
        template = _environment().from_string(source)
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
        except Exception as error:  # templates add texts to lists, and look into what is not there
            yield {"refused": f"{type(error).__name__}: {error}"}


def _environment() -> Environment:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda _: "2026-01-01",
        "range": lambda *of: range(*of)[:MOST_LOOPS],
    }
    return environment


def _raise(message: object) -> None:
    raise TemplateRefusal(str(message))


def _limit_length(pieces: Iterator[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MOST_RENDERED:
            raise TemplateRefusal("it writes without end")
        yield piece


def _limit_process(seconds: int, size: int) -> None:
    """Have the system bound the time and the memory of this process, as far as it can."""
    try:
        import resource  # Windows has none
    except ImportError:
        return
    for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (most, most))


def main() -> None:
    """Do what standard input says."""
    asked = json.load(sys.stdin.buffer)
    _limit_process(asked["seconds"], asked["bytes"])
    try:
        done = [*render_template(asked["source"], asked["fields"])]
    except MemoryError:
        done = None
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
