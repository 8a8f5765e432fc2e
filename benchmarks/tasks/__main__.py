"""How well a model calls tools: `python -m benchmarks.tasks --url URL --model M [--setup NAME …]`.

An agent's loop with tools that have real effects in a scratch folder, against any OpenAI-compatible server, once for
each set-up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.tasks.agent import Agent, Attempt
from benchmarks.tasks.catalog import TASKS, Task
from benchmarks.tasks.setups import DEFAULT, DIRECT, REQUIRED, USUAL, VARIANT, VARIANTS, client
from benchmarks.tasks.table import table
from vtc.profiles import builtin_directory, load

EPILOG = """\
set-ups:
  direct     without VTC: what the server makes of `tools` itself
  default    with VTC, which picks by the model's name
  DIALECT    with VTC, tools written into the prompt in that dialect; globs: '*' are all of them
  DIALECT+required, DIALECT+auto
             the same, and the server decodes by a grammar as llama.cpp does: with `required` a call is demanded in
             the first reply of a task that needs tools, with `auto` text and calls are free to choose
  default+last, DIALECT+last
             the same, and a call as JSON in a code block that ends the reply is read (`vtc_blocks=last`)

columns, the most that a number can be after the name:
  call       the first reply holds a call
  right      the first call has a right tool and the arguments that it requires
  stray      the first call has an argument that its tool does not declare
  solved     what was asked for is in the folder or in the last answer
  wrong      calls where none is needed, or of a tool that is not offered: wrongly lifted
  tokens, s  written by the model, and seconds for all tasks
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", required=True, help="the server's base, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True, help="the model's name, by which VTC picks as well")
    parser.add_argument("--setup", nargs="+", default=USUAL, metavar="NAME", help=f"by default {' '.join(USUAL)}")
    parser.add_argument("--task", nargs="+", default=["*"], metavar="NAME", help="globs; by default all tasks")
    parser.add_argument("--turns", type=int, default=4, help="replies for each task, at most (default: 4)")
    parser.add_argument("--tokens", type=int, default=120, help="of each reply, at most (default: 120)")
    parser.add_argument("--profiles", type=Path, nargs="+", default=[], metavar="FOLDER", help="more dialects")
    parser.add_argument("--json", type=Path, default=Path("build/tasks.json"), help="where all replies go")
    given = parser.parse_args(arguments)
    dialects = load([builtin_directory(), *given.profiles]).dialects
    prompted = sorted(name for name, dialect in dialects.items() if dialect.prompt)
    variants = [f"{name}{VARIANT}{variant}" for name in (DEFAULT, *prompted) for variant in VARIANTS]
    known = [DIRECT, DEFAULT, *prompted]
    found = {
        glob: [name for name in (variants if VARIANT in glob else known) if fnmatch(name, glob)] for glob in given.setup
    }
    setups = [name for names in found.values() for name in names]
    if unknown := [glob for glob, names in found.items() if not names]:
        parser.error(f"no such set-up: {', '.join(unknown)}; there are {', '.join(known)}")
    tasks = [task for task in TASKS if any(fnmatch(task.name, glob) for glob in given.task)]
    if not tasks:
        parser.error(f"no such task; there are {', '.join(task.name for task in TASKS)}")
    rows: dict[str, list[Attempt]] = {}
    for setup in dict.fromkeys(setups):
        with client(setup, given.url, given.profiles) as sdk:
            agent = Agent(sdk, given.model, given.turns, given.tokens, demands=setup.endswith(VARIANT + REQUIRED))
            rows[setup] = _attempts(agent, setup, tasks)
    print(table(rows))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    all_of_it = {setup: [attempt.as_dict() for attempt in attempts] for setup, attempts in rows.items()}
    given.json.write_text(json.dumps(all_of_it, indent=1, ensure_ascii=False) + "\n")


def _attempts(agent: Agent, setup: str, tasks: Sequence[Task]) -> list[Attempt]:
    attempts = []
    for task in tasks:
        print(f"\r\033[K{setup}: {task.name}", end="", file=sys.stderr, flush=True)
        attempts.append(agent.attempt(task))
    print("\r\033[K", end="", file=sys.stderr)
    if errors := {attempt.error for attempt in attempts if attempt.error}:
        print(f"{setup}: {'; '.join(sorted(errors))}", file=sys.stderr)
    return attempts


if __name__ == "__main__":
    main()
