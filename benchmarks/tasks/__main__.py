"""Measure how well a model calls tools: `python -m benchmarks.tasks --url URL --model M [--setup NAME …]`.

An agent's loop runs once for each set-up, against any OpenAI-compatible server; its tools have real effects in a
temporary folder.
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
from benchmarks.tasks.setups import DEFAULT, DIRECT, REQUIRED, USUAL_SETUPS, VARIANT_SEPARATOR, VARIANTS, open_client
from benchmarks.tasks.table import format_table
from vtc.profiles import builtin_directory, load_profiles

EPILOG = """\
set-ups:
  direct     without VTC: the server interprets `tools` itself
  default    with VTC, which chooses by the model's name
  DIALECT    with VTC, tools written into the prompt in that dialect; globs: '*' selects all dialects
  DIALECT+required, DIALECT+auto
             the same, and the server decodes by a grammar as llama.cpp does: `required` demands a call in the
             first reply of a task that needs tools, `auto` allows text and calls
  default+last, DIALECT+last
             the same, and a call as JSON in a code block that ends the reply is read (`vtc_blocks=last`)

columns, with the maximum after the name:
  call       the first reply contains a call
  right      the first call has a right tool and the arguments that it requires
  stray      the first call has an argument that its tool does not declare
  solved     the requested result is in the folder or in the last answer
  wrong      calls in a task that needs none, or of a tool that is not offered
  tokens, s  tokens written by the model, and seconds for all tasks
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", required=True, help="base URL of the server, for example http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True, help="name of the model, by which VTC also chooses its profile")
    parser.add_argument(
        "--setup", nargs="+", default=USUAL_SETUPS, metavar="NAME", help=f"set-ups ({' '.join(USUAL_SETUPS)}"
    )
    parser.add_argument("--task", nargs="+", default=["*"], metavar="NAME", help="tasks, as globs (all)")
    parser.add_argument("--turns", type=int, default=4, help="maximum replies for each task (%(default)s)")
    parser.add_argument("--tokens", type=int, default=120, help="maximum tokens of each reply (%(default)s)")
    parser.add_argument(
        "--profiles", type=Path, nargs="+", default=[], metavar="FOLDER", help="folders with more profiles"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("build/tasks.json"), help="file for all replies as JSON (%(default)s)"
    )
    options = parser.parse_args(arguments)
    dialects = load_profiles([builtin_directory(), *options.profiles]).dialects
    prompted = sorted(name for name, dialect in dialects.items() if dialect.prompt)
    variants = [f"{name}{VARIANT_SEPARATOR}{variant}" for name in (DEFAULT, *prompted) for variant in VARIANTS]
    known = [DIRECT, DEFAULT, *prompted]
    names_by_glob = {
        glob: [name for name in (variants if VARIANT_SEPARATOR in glob else known) if fnmatch(name, glob)]
        for glob in options.setup
    }
    setups = [name for names in names_by_glob.values() for name in names]
    if unknown := [glob for glob, names in names_by_glob.items() if not names]:
        parser.error(f"no such set-up: {', '.join(unknown)}; there are {', '.join(known)}")
    tasks = [task for task in TASKS if any(fnmatch(task.name, glob) for glob in options.task)]
    if not tasks:
        parser.error(f"no such task; there are {', '.join(task.name for task in TASKS)}")
    rows: dict[str, list[Attempt]] = {}
    for setup in dict.fromkeys(setups):
        with open_client(setup, options.url, options.profiles) as sdk:
            agent = Agent(
                sdk,
                options.model,
                options.turns,
                options.tokens,
                requires_call=setup.endswith(VARIANT_SEPARATOR + REQUIRED),
            )
            rows[setup] = _run_attempts(agent, setup, tasks)
    print(format_table(rows))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    attempts_by_setup = {setup: [attempt.as_dict() for attempt in attempts] for setup, attempts in rows.items()}
    options.json.write_text(json.dumps(attempts_by_setup, indent=1, ensure_ascii=False) + "\n")


def _run_attempts(agent: Agent, setup: str, tasks: Sequence[Task]) -> list[Attempt]:
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
