"""The tasks: their prompts, files and checks.

They are small enough for a model of half a billion parameters to solve some of them. The check of a task looks at the
folder if the result is there, otherwise at the last answer. The last three need no tool; any call in them is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any

from benchmarks.tasks.folder import PARAMETERS

type Call = tuple[str, Mapping[str, str]]
type Check = Callable[[Path, str], bool]


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its check and its solution."""

    name: str
    ask: str
    check: Check
    """Predicate on the folder and the last answer: is the task solved?"""
    solution: Sequence[Call] = ()
    """Calls that solve the task; empty for a task that needs no tool."""
    answer: str = "Done."
    """The answer after these calls."""
    files: Mapping[str, str] = field(default_factory=dict)
    first: Sequence[Call] = ()
    """Other right first calls; arguments that are not named here may have any value."""

    @property
    def needs_tools(self) -> bool:
        return bool(self.solution)

    def is_right(self, name: str, arguments: str) -> bool:
        """Return True if a first call has a right tool and all required arguments."""
        given = decode_arguments(arguments)
        return any(
            name == tool
            and all(key in given for key in PARAMETERS[tool]["required"])
            and all(_normalize(key, given.get(key)) == _normalize(key, value) for key, value in wanted.items())
            for tool, wanted in (*self.solution[:1], *self.first)
        )


def decode_arguments(arguments: str) -> Mapping[str, Any]:
    """Decode the arguments of a call; an empty mapping if they are not a JSON object."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _normalize(key: str, value: Any) -> str:
    """Return a value without surrounding white space and, if it is a path, in normal form."""
    text = str(value).strip()
    return normpath(text) if key == "path" else text


def _expect_file(path: str, text: str) -> Check:
    """Return a check that a file has exactly this text, ignoring white space at both ends."""
    return lambda root, _: (root / path).is_file() and (root / path).read_text().strip() == text.strip()


def _expect_words(*words: str) -> Check:
    """Return a check that the answer contains these words."""
    return lambda _, answer: all(word in answer.lower() for word in words)


ADD = "def add(a, b):\n    return a - b\n"
TASKS = (
    Task(
        "read a note",
        "What is the code word in note.txt?",
        _expect_words("heron"),
        [("read_file", {"path": "note.txt"})],
        "The code word is heron.",
        {"note.txt": "The code word is heron.\n"},
    ),
    Task(
        "create a file",
        "Create the file hello.txt with the text: hello",
        _expect_file("hello.txt", "hello"),
        [("write_file", {"path": "hello.txt", "content": "hello"})],
    ),
    Task(
        "list files",
        "Which files are there?",
        _expect_words("apple.md", "pear.md"),
        [("list_files", {})],
        "There are apple.md and pear.md.",
        {"apple.md": "red\n", "pear.md": "green\n"},
    ),
    Task(
        "change a setting",
        "In config.ini, replace debug=on with debug=off.",
        _expect_file("config.ini", "name=demo\ndebug=off"),
        [("replace_in_file", {"path": "config.ini", "old": "debug=on", "new": "debug=off"})],
        files={"config.ini": "name=demo\ndebug=on\n"},
        first=[("read_file", {"path": "config.ini"})],
    ),
    Task(
        "find a word",
        "Which file has the word zebra in it?",
        _expect_words("c.txt"),
        [("search", {"text": "zebra"})],
        "It is in c.txt.",
        {"a.txt": "a lion\n", "b.txt": "a bear\n", "c.txt": "one zebra\n"},
    ),
    Task(
        "create a file in a folder",
        "Write the text 42 into the file data/answer.txt.",
        _expect_file("data/answer.txt", "42"),
        [("write_file", {"path": "data/answer.txt", "content": "42"})],
    ),
    Task(
        "read a table",
        "How old is Ada? Look into people.csv.",
        _expect_words("36"),
        [("read_file", {"path": "people.csv"})],
        "Ada is 36.",
        {"people.csv": "name,age\nBob,51\nAda,36\n"},
        [("search", {"text": "Ada"})],
    ),
    Task(
        "change a word",
        "In poem.txt, change roses to tulips.",
        _expect_file("poem.txt", "tulips are red"),
        [("replace_in_file", {"path": "poem.txt", "old": "roses", "new": "tulips"})],
        files={"poem.txt": "roses are red\n"},
        first=[("read_file", {"path": "poem.txt"})],
    ),
    Task(
        "write JSON",
        'Create demo.json with this content: {"name": "demo", "size": 3}',
        lambda root, _: _read_json(root / "demo.json") == {"name": "demo", "size": 3},
        [("write_file", {"path": "demo.json", "content": '{"name": "demo", "size": 3}'})],
        first=[("write_file", {"path": "demo.json"})],
    ),
    Task(
        "write three lines",
        "Create colors.txt with three lines: red, green, blue. One word a line.",
        _expect_file("colors.txt", "red\ngreen\nblue"),
        [("write_file", {"path": "colors.txt", "content": "red\ngreen\nblue\n"})],
    ),
    Task(
        "write markup",
        "Create index.html with this content: <h1>Hi</h1>",
        _expect_file("index.html", "<h1>Hi</h1>"),
        [("write_file", {"path": "index.html", "content": "<h1>Hi</h1>"})],
    ),
    Task(
        "copy a file",
        "Copy the text of a.txt into a new file b.txt.",
        _expect_file("b.txt", "lemon tree"),
        [("read_file", {"path": "a.txt"}), ("write_file", {"path": "b.txt", "content": "lemon tree\n"})],
        files={"a.txt": "lemon tree\n"},
    ),
    Task(
        "count files",
        "How many files are in the folder img?",
        lambda _, answer: "3" in answer or "three" in answer.lower(),
        [("list_files", {"path": "img"})],
        "There are 3.",
        {"img/a.svg": "", "img/b.svg": "", "img/c.svg": "", "x.txt": ""},
        [("list_files", {})],
    ),
    Task(
        "mend a function",
        "The function in add.py should add, but it subtracts. Mend it.",
        lambda root, _: "a + b" in (root / "add.py").read_text(),
        [
            ("read_file", {"path": "add.py"}),
            ("replace_in_file", {"path": "add.py", "old": "a - b", "new": "a + b"}),
        ],
        files={"add.py": ADD},
        first=[("replace_in_file", {"path": "add.py"}), ("write_file", {"path": "add.py"})],
    ),
    Task(
        "find a line",
        "On which line of log.txt is the word ERROR?",
        _expect_words("3"),
        [("search", {"text": "ERROR"})],
        "On line 3.",
        {"log.txt": "start\nrun\nERROR: disk full\nend\n"},
        [("read_file", {"path": "log.txt"})],
    ),
    Task(
        "empty a file",
        "Overwrite cache.txt with the text: none",
        _expect_file("cache.txt", "none"),
        [("write_file", {"path": "cache.txt", "content": "none"})],
        files={"cache.txt": "old\n"},
    ),
    Task("add two numbers", "What is 2 + 2? Use no tool.", _expect_words("4"), answer="4"),
    Task("say hello", "Say hello to me.", _expect_words("hello"), answer="Hello!"),
    Task(
        "explain a tool",
        "In one sentence and without using it: what is the tool search good for?",
        lambda _, answer: any(word in answer.lower() for word in ("find", "search", "look")),
        answer="It finds lines in all files.",
    ),
)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None
