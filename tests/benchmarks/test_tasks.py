"""The task benchmark: tools stay in their folder, checkers recognize finished tasks, the table adds up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tasks.__main__ import main
from benchmarks.tasks.agent import Agent, Attempt
from benchmarks.tasks.catalog import TASKS, Task
from benchmarks.tasks.folder import DECLARED_TOOLS, PARAMETERS, Folder
from benchmarks.tasks.setups import DIRECT, open_client
from benchmarks.tasks.table import format_table
from tests.dialects.material import DIALECTS
from vtc.dialects.writing import write_calls
from vtc.events import ToolCall

BY_NAME = {task.name: task for task in TASKS}
READ, COPY, HELLO = (BY_NAME[name] for name in ("read a note", "copy a file", "say hello"))


# The folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "inside"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path)
    (root / "a.txt").write_text("one\ntwo\n")
    return Folder(root)


def run(folder: Folder, name: str, **arguments: Any) -> str:
    return folder.run(name, json.dumps(arguments))


@pytest.mark.parametrize("path", ["../secret.txt", "link/secret.txt", "x/../../secret.txt", "{outside}/secret.txt"])
def test_a_path_out_of_the_folder_is_refused(folder: Folder, path: str) -> None:
    outside = folder.root.parent
    path = path.replace("{outside}", str(outside))
    for result in (
        run(folder, "read_file", path=path),
        run(folder, "write_file", path=path, content="mine"),
        run(folder, "replace_in_file", path=path, old="secret", new="mine"),
    ):
        assert result == f"error: {path} is outside of the folder"
    assert (outside / "secret.txt").read_text() == "secret"


def test_a_link_out_of_the_folder_is_neither_listed_nor_searched(folder: Folder) -> None:
    (folder.root / "direct").symlink_to(folder.root.parent / "secret.txt")
    assert run(folder, "list_files") == "a.txt"
    assert run(folder, "search", text="secret") == "(not found)"
    assert run(folder, "list_files", path="..") == "error: .. is outside of the folder"


def test_each_tool_has_its_effect(folder: Folder) -> None:
    assert run(folder, "write_file", path="./b/c.txt", content="three\n") == "wrote b/c.txt"
    assert run(folder, "replace_in_file", path="a.txt", old="two", new="three") == "changed a.txt"
    assert run(folder, "read_file", path="a.txt") == "one\nthree\n"
    assert run(folder, "list_files") == "a.txt\nb/c.txt"
    assert run(folder, "list_files", path="b") == "b/c.txt"
    assert run(folder, "search", text="three") == "a.txt:2: three\nb/c.txt:1: three"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("run", "{}", "there is no tool 'run'"),
        ("root", "{}", "there is no tool 'root'"),
        ("read_file", "{}", "missing a required argument: 'path'"),
        ("read_file", '{"path": "a.txt", "mode": "r"}', "got an unexpected keyword argument 'mode'"),
        ("read_file", '{"path": ', "Expecting value"),
        ("read_file", "[]", "must be a mapping"),
        ("read_file", '{"path": "none.txt"}', "No such file"),
        ("replace_in_file", '{"path": "a.txt", "old": "five", "new": "six"}', "'five' is not in a.txt"),
    ],
)
def test_impossible_call_is_reported(folder: Folder, name: str, arguments: str, error: str) -> None:
    result = folder.run(name, arguments)
    assert result.startswith("error: ")
    assert error in result
    assert str(folder.root) not in result


def test_every_tool_is_declared_with_the_arguments_that_it_takes(folder: Folder) -> None:
    for name, schema in PARAMETERS.items():
        required = dict.fromkeys(schema["required"], "x")
        assert "argument" not in run(folder, name, **dict.fromkeys(schema["properties"], "x"))
        assert "argument" not in run(folder, name, **required)
        for missing in required:
            less = {key: value for key, value in required.items() if key != missing}
            assert f"missing a required argument: {missing!r}" in run(folder, name, **less)


# The tasks


def test_there_are_enough_tasks_of_either_kind() -> None:
    assert len(BY_NAME) == len(TASKS)
    assert len({task.ask for task in TASKS}) == len(TASKS)
    assert sum(task.needs_tools for task in TASKS) >= 16
    assert sum(not task.needs_tools for task in TASKS) >= 2


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_done_by_its_solution_and_by_nothing_else(task: Task, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for path, text in task.files.items():
        folder.write_file(path, text)
    assert not task.check(tmp_path, "")
    assert not task.check(tmp_path, "Done.")
    for name, arguments in task.solution:
        assert not run(folder, name, **arguments).startswith("error")
    assert task.check(tmp_path, task.answer)


@pytest.mark.parametrize("task", [task for task in TASKS if task.needs_tools], ids=lambda task: task.name)
def test_first_call_needs_the_right_tool_and_its_required_arguments(task: Task) -> None:
    for name, wanted in (*task.solution[:1], *task.first):
        arguments = dict.fromkeys(PARAMETERS[name]["required"], "x") | dict(wanted)
        assert task.is_right(name, json.dumps(arguments))
        assert not task.is_right(f"{name}s", json.dumps(arguments))
        for missing in PARAMETERS[name]["required"]:
            assert not task.is_right(name, json.dumps({key: arguments[key] for key in arguments if key != missing}))
    name, wanted = task.solution[0]
    assert not task.is_right("list_files" if name != "list_files" else "read_file", json.dumps({"path": "elsewhere"}))
    assert not task.is_right(name, "no JSON") or not PARAMETERS[name]["required"]


def test_white_space_and_a_dot_before_a_path_make_no_difference() -> None:
    assert READ.is_right("read_file", '{"path": " ./note.txt\\n"}')
    assert not READ.is_right("read_file", '{"path": "notes.txt"}')


# The loop, with a real server instead of a model


type Script = Callable[[Task, int, Mapping[str, Any]], Mapping[str, Any]]
"""A function from task, number of the reply and request to the message; with `error` the server rejects the request."""


@contextmanager
def serve_script(script: Script) -> Iterator[str]:
    """Serve every task by a script; yield the base URL of the API."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            conversation = json.dumps(asked["messages"])
            task = next(task for task in TASKS if json.dumps(task.ask)[1:-1] in conversation)
            turn = sum(message["role"] == "assistant" for message in asked["messages"])
            message = {"role": "assistant", **script(task, turn, asked)}
            status = 400 if "error" in message else 200
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            body = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
                "error": message.get("error"),
            }
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def in_text(task: Task, turn: int, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Complete a task in as many replies as it has calls, in the format of the Qwen models."""
    if turn >= len(task.solution):
        return {"content": task.answer}
    name, arguments = task.solution[turn]
    return {"content": write_calls([ToolCall(name, json.dumps(arguments))], DIALECTS["hermes"], {})}


def natively(*calls: tuple[str, str]) -> Mapping[str, Any]:
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"content": None, "tool_calls": made}


def attempt_task(task: Task, script: Script, turns: int = 4) -> Attempt:
    with serve_script(script) as url, open_client(DIRECT, url) as sdk:
        return Agent(sdk, "m", turns).attempt(task)


def test_a_task_is_done_over_several_turns() -> None:
    seen = []

    def script(task: Task, turn: int, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(asked)
        calls = [(name, json.dumps(arguments)) for name, arguments in task.solution[turn : turn + 1]]
        return natively(*calls) if calls else {"content": task.answer}

    attempt = attempt_task(COPY, script)
    assert (attempt.called, attempt.right, attempt.stray, attempt.solved) == (True, True, False, True)
    assert (attempt.tokens, attempt.wrong, attempt.error) == (21, 0, "")
    assert attempt.results == ["lemon tree\n", "wrote b.txt"]
    assert [message["role"] for message in seen[-1]["messages"]][2:] == ["assistant", "tool", "assistant", "tool"]
    assert [request["temperature"] for request in seen] == [0, 0, 0]
    assert seen[0]["tools"] == DECLARED_TOOLS


def test_no_more_replies_are_asked_for_than_allowed() -> None:
    attempt = attempt_task(READ, lambda *_: natively(("read_file", '{"path": "note.txt"}')), turns=2)
    assert len(attempt.replies) == 2
    assert attempt.right
    assert not attempt.solved


def test_only_the_first_call_counts_as_first() -> None:
    attempt = attempt_task(
        READ, lambda *_: natively(("search", '{"text": "x"}'), ("read_file", '{"path": "note.txt"}'))
    )
    assert attempt.called
    assert not attempt.right


def test_an_argument_that_is_not_declared_is_stray() -> None:
    attempt = attempt_task(READ, lambda *_: natively(("read_file", '{"path": "note.txt", "required": ["path"]}')))
    assert (attempt.right, attempt.stray) == (True, True)


def test_unnecessary_and_unknown_calls_are_wrong() -> None:
    def once(*calls: tuple[str, str]) -> Script:
        end = {"content": "Hello! The code word is heron."}
        return lambda _, turn, asked: natively(*calls) if turn == 0 and calls else end

    attempt = attempt_task(HELLO, once(("list_files", "{}")))
    assert (attempt.wrong, attempt.solved) == (1, False)
    attempt = attempt_task(READ, once(("shell", "{}"), ("list_files", "{}")))
    assert (attempt.wrong, attempt.solved) == (1, True)
    assert attempt.results[0] == "error: there is no tool 'shell'"
    assert attempt_task(HELLO, once()).solved


def test_rejecting_server_is_reported() -> None:
    attempt = attempt_task(READ, lambda *_: {"error": {"message": "no tools here"}})
    assert "no tools here" in attempt.error
    assert (attempt.called, attempt.solved, attempt.replies) == (False, False, [])


# The table


def test_the_table_adds_up() -> None:
    call = {"tool_calls": [{"function": {"name": "read_file", "arguments": '{"path": "note.txt", "x": 1}'}}]}
    done = Attempt(READ, replies=[call], solved=True, tokens=30, seconds=1.4)
    silent = Attempt(COPY, replies=[{"content": "No."}], tokens=5, seconds=0.2)
    wrong = Attempt(HELLO, replies=[call], tokens=8, seconds=0.1)
    assert format_table({"direct": [done, silent, wrong], "tag": []}).splitlines() == [
        "| set-up | call /2 | right /2 | stray | solved /3 | wrong | tokens | s |",
        "|--------|--------:|---------:|------:|----------:|------:|-------:|--:|",
        "| direct |       1 |        1 |     1 |         1 |     1 |     43 | 2 |",
        "| tag    |       0 |        0 |     0 |         0 |     0 |      0 | 0 |",
    ]


@pytest.mark.rest
def test_vtc_makes_the_difference_to_a_model_that_writes_its_calls_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "tasks.json"
    with serve_script(in_text) as url:
        main(["--url", url, "--model", "qwen2.5-7b", "--setup", "direct", "default", "hermes", "--json", str(file)])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    needing, every = sum(task.needs_tools for task in TASKS), len(TASKS)
    assert rows[0][:6] == ["set-up", f"call /{needing}", f"right /{needing}", "stray", f"solved /{every}", "wrong"]
    tokens = 7 * (every + sum(len(task.solution) for task in TASKS))
    direct, *with_vtc = rows[2:]
    assert direct[:4] == ["direct", "0", "0", "0"]
    assert [row[:7] for row in with_vtc] == [
        [name, str(needing), str(needing), "0", str(every), "0", str(tokens)] for name in ("default", "hermes")
    ]
    attempts = json.loads(file.read_text())["hermes"]
    assert [attempt["task"] for attempt in attempts] == [task.name for task in TASKS]
    assert all(attempt["solved"] for attempt in attempts)


@pytest.mark.rest
def test_grammar_is_sent_if_the_setup_has_one(tmp_path: Path) -> None:
    """With `required` it is sent in the first reply of a task that needs tools, with `auto` in each."""
    grammars: dict[str, list[bool]] = {}
    for setup in ("hermes", "hermes+required", "hermes+auto"):
        seen = grammars.setdefault(setup, [])

        def script(task: Task, turn: int, asked: Mapping[str, Any], seen: list[bool] = seen) -> Mapping[str, Any]:
            seen.append("grammar" in asked)
            return in_text(task, turn, asked)

        with serve_script(script) as url:
            wanted = ["--setup", setup, "--task", READ.name, HELLO.name, "--json", str(tmp_path / "tasks.json")]
            main(["--url", url, "--model", "qwen2.5-7b", *wanted])
    assert grammars == {
        "hermes": [False, False, False],
        "hermes+required": [True, False, False],
        "hermes+auto": [True, True, True],
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--setup", "hermes+never"], "no such set-up: hermes+never"),
        (["--setup", "nonsense"], "no such set-up: nonsense"),
        (["--task", "nonsense"], "no such task"),
    ],
)
def test_unknown_name_is_reported(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--url", "http://127.0.0.1:9/v1", "--model", "m", *arguments])
    assert error in capsys.readouterr().err


def test_no_request_goes_through_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    attempt = attempt_task(HELLO, lambda *_: {"content": "Hello!"})
    assert attempt.solved
