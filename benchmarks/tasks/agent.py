"""An agent: it sends a request, executes the calls and sends their results, until it gets an answer or has no turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from benchmarks.tasks.catalog import Task, decode_arguments
from benchmarks.tasks.folder import DECLARED_TOOLS, PARAMETERS, Folder

SYSTEM = "You work on the files of one folder. When the work is done, say so in one short sentence."


@dataclass(slots=True)
class Attempt:
    """A model's attempt at one task."""

    task: Task
    replies: list[dict[str, Any]] = field(default_factory=list)
    """Messages of the model, as the client received them."""
    results: list[str] = field(default_factory=list)
    solved: bool = False
    tokens: int = 0
    """Tokens written by the model, as counted by the server."""
    seconds: float = 0.0
    error: str = ""

    def calls(self, turn: int | None = None) -> list[Mapping[str, str]]:
        """Return the functions called in one reply or in all."""
        replies = self.replies if turn is None else self.replies[turn : turn + 1]
        return [call["function"] for reply in replies for call in reply.get("tool_calls", ())]

    @property
    def called(self) -> bool:
        """True if the first reply contains a call."""
        return bool(self.calls(0))

    @property
    def right(self) -> bool:
        """True if the first call has a right tool and all required arguments."""
        return any(self.task.is_right(call["name"], call["arguments"]) for call in self.calls(0)[:1])

    @property
    def stray(self) -> bool:
        """True if the first call has an argument that its tool does not declare."""
        return any(
            decode_arguments(call["arguments"]).keys() - PARAMETERS.get(call["name"], {}).get("properties", {}).keys()
            for call in self.calls(0)[:1]
        )

    @property
    def wrong(self) -> int:
        """Number of calls in a task that needs none, or of a tool that is not offered."""
        return sum(not self.task.needs_tools or call["name"] not in PARAMETERS for call in self.calls())

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for the JSON."""
        verdicts = {key: getattr(self, key) for key in ("called", "right", "stray", "wrong", "solved")}
        measured = {key: getattr(self, key) for key in ("tokens", "seconds", "error", "replies", "results")}
        return {"task": self.task.name, **verdicts, **measured}


@dataclass(frozen=True, slots=True)
class Agent:
    """A client of a model, and the limits of its attempts."""

    client: openai.OpenAI
    model: str
    turns: int = 4
    max_tokens: int = 120
    """Maximum tokens of each reply."""
    requires_call: bool = False
    """True if the first reply of a task that needs tools must contain a call."""

    def attempt(self, task: Task) -> Attempt:
        """Let the model attempt one task in a separate folder."""
        attempt = Attempt(task)
        with tempfile.TemporaryDirectory() as directory:
            folder = Folder(Path(directory))
            for path, text in task.files.items():
                folder.write_file(path, text)
            started = time.perf_counter()
            try:
                answer = self._converse(attempt, folder)
            except openai.OpenAIError as error:
                attempt.error, answer = str(error), ""
            attempt.seconds = time.perf_counter() - started
            # An unnecessary call has an effect that nobody requested.
            attempt.solved = task.check(folder.root, answer) and (task.needs_tools or not attempt.calls())
        return attempt

    def _converse(self, attempt: Attempt, folder: Folder) -> str:
        """Return the answer, or an empty string if no answer is received within `turns`."""
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": attempt.task.ask},
        ]
        for turn in range(self.turns):
            demanded = self.requires_call and turn == 0 and attempt.task.needs_tools
            completion = self.client.chat.completions.create(
                model=self.model,
                messages=messages,
                tools=DECLARED_TOOLS,  # type: ignore[arg-type]
                tool_choice="required" if demanded else openai.omit,
                temperature=0,
                max_tokens=self.max_tokens,
            )
            attempt.tokens += completion.usage.completion_tokens if completion.usage else 0
            reply = completion.choices[0].message.model_dump(exclude_none=True)
            attempt.replies.append(reply)
            messages.append(reply)
            if not reply.get("tool_calls"):
                return str(reply.get("content", ""))
            for call in reply["tool_calls"]:
                result = folder.run(call["function"]["name"], call["function"]["arguments"])
                attempt.results.append(result)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return ""
