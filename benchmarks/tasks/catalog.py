"""The tasks: what is asked, the files that are there, and how to tell that it was done.

They are small enough for a model of half a billion parameters to do some of them. A task whose result is in the folder
is judged by the folder, all others by the last answer. The last three need no tool: a call in them is one too many.
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
    name: str
    ask: str
    check: Check
    """Whether it is done, by the folder and the last answer."""
    solution: Sequence[Call] = ()
    """Calls that do it; none for a task that needs no tool."""
    answer: str = "Done."
    """What is said after them."""
    files: Mapping[str, str] = field(default_factory=dict)
    first: Sequence[Call] = ()
    """Other first calls that are as right; arguments that are not named here may be anything."""

    @property
    def needs_tools(self) -> bool:
        return bool(self.solution)

    def is_right(self, name: str, arguments: str) -> bool:
        """Whether a first call has a right tool and all that it requires."""
        given = loaded(arguments)
        return any(
            name == tool
            and all(key in given for key in PARAMETERS[tool]["required"])
            and all(_plain(key, given.get(key)) == _plain(key, value) for key, value in wanted.items())
            for tool, wanted in (*self.solution[:1], *self.first)
        )


def loaded(arguments: str) -> Mapping[str, Any]:
    """Arguments of a call; none if they are no JSON object."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _plain(key: str, value: Any) -> str:
    """A value without what makes no difference here: white space around it, and `./` before a path."""
    text = str(value).strip()
    return normpath(text) if key == "path" else text


def _holds(path: str, text: str) -> Check:
    """Check that a file has just this text, but for white space at its ends."""
    return lambda root, _: (root / path).is_file() and (root / path).read_text().strip() == text.strip()


def _says(*words: str) -> Check:
    return lambda _, answer: all(word in answer.lower() for word in words)


ADD = "def add(a, b):\n    return a - b\n"
TASKS = (
    Task(
        "read a note",
        "What is the code word in note.txt?",
        _says("heron"),
        [("read_file", {"path": "note.txt"})],
        "The code word is heron.",
        {"note.txt": "The code word is heron.\n"},
    ),
    Task(
        "create a file",
        "Create the file hello.txt with the text: hello",
        _holds("hello.txt", "hello"),
        [("write_file", {"path": "hello.txt", "content": "hello"})],
    ),
    Task(
        "list files",
        "Which files are there?",
        _says("apple.md", "pear.md"),
        [("list_files", {})],
        "There are apple.md and pear.md.",
        {"apple.md": "red\n", "pear.md": "green\n"},
    ),
    Task(
        "change a setting",
        "In config.ini, replace debug=on with debug=off.",
        _holds("config.ini", "name=demo\ndebug=off"),
        [("replace_in_file", {"path": "config.ini", "old": "debug=on", "new": "debug=off"})],
        files={"config.ini": "name=demo\ndebug=on\n"},
        first=[("read_file", {"path": "config.ini"})],
    ),
    Task(
        "find a word",
        "Which file has the word zebra in it?",
        _says("c.txt"),
        [("search", {"text": "zebra"})],
        "It is in c.txt.",
        {"a.txt": "a lion\n", "b.txt": "a bear\n", "c.txt": "one zebra\n"},
    ),
    Task(
        "create a file in a folder",
        "Write the text 42 into the file data/answer.txt.",
        _holds("data/answer.txt", "42"),
        [("write_file", {"path": "data/answer.txt", "content": "42"})],
    ),
    Task(
        "read a table",
        "How old is Ada? Look into people.csv.",
        _says("36"),
        [("read_file", {"path": "people.csv"})],
        "Ada is 36.",
        {"people.csv": "name,age\nBob,51\nAda,36\n"},
        [("search", {"text": "Ada"})],
    ),
    Task(
        "change a word",
        "In poem.txt, change roses to tulips.",
        _holds("poem.txt", "tulips are red"),
        [("replace_in_file", {"path": "poem.txt", "old": "roses", "new": "tulips"})],
        files={"poem.txt": "roses are red\n"},
        first=[("read_file", {"path": "poem.txt"})],
    ),
    Task(
        "write JSON",
        'Create demo.json with this content: {"name": "demo", "size": 3}',
        lambda root, _: _json(root / "demo.json") == {"name": "demo", "size": 3},
        [("write_file", {"path": "demo.json", "content": '{"name": "demo", "size": 3}'})],
        first=[("write_file", {"path": "demo.json"})],
    ),
    Task(
        "write three lines",
        "Create colors.txt with three lines: red, green, blue. One word a line.",
        _holds("colors.txt", "red\ngreen\nblue"),
        [("write_file", {"path": "colors.txt", "content": "red\ngreen\nblue\n"})],
    ),
    Task(
        "write markup",
        "Create index.html with this content: <h1>Hi</h1>",
        _holds("index.html", "<h1>Hi</h1>"),
        [("write_file", {"path": "index.html", "content": "<h1>Hi</h1>"})],
    ),
    Task(
        "copy a file",
        "Copy the text of a.txt into a new file b.txt.",
        _holds("b.txt", "lemon tree"),
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
        _says("3"),
        [("search", {"text": "ERROR"})],
        "On line 3.",
        {"log.txt": "start\nrun\nERROR: disk full\nend\n"},
        [("read_file", {"path": "log.txt"})],
    ),
    Task(
        "empty a file",
        "Overwrite cache.txt with the text: none",
        _holds("cache.txt", "none"),
        [("write_file", {"path": "cache.txt", "content": "none"})],
        files={"cache.txt": "old\n"},
    ),
    Task("add two numbers", "What is 2 + 2? Use no tool.", _says("4"), answer="4"),
    Task("say hello", "Say hello to me.", _says("hello"), answer="Hello!"),
    Task(
        "explain a tool",
        "In one sentence and without using it: what is the tool search good for?",
        lambda _, answer: any(word in answer.lower() for word in ("find", "search", "look")),
        answer="It finds lines in all files.",
    ),
)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None
