"""Tests of `vtc env`: the shells run the printed commands, which start an agent."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.e2e.conftest import Start, start
from tests.e2e.upstream import JSON, Reply, Seen
from vtc.cli import main

__all__ = ["start"]

ODD_MODEL_NAME = """a "model" of $HOME's `x` \\n {key} é%s"""
"""A name that a shell changes unless it is quoted correctly."""
AGENT = {
    "kind": "agent",
    "name": "lab",
    "api": "openai-chat",
    "commands": ["lab-agent", "other-agent"],
    "install": "pip install lab-agent",
    "variables": {
        "LAB_URL": "{address}/v1",
        "LAB_KEY": "{key}",
        "LAB_JSON": {"models": {"{model}": {"key": "{key}"}}},
        "LAB_FILE": "{folder}/deep/lab.json",
        "LAB_OWN": None,
    },
    "arguments": ["--model", "{model}", "--empty", "", "--config", "{folder}/lab.toml"],
    "files": {"deep/lab.json": {"model": "{model}", "key": "{key}"}, "lab.toml": 'model = "{model}"\n# it\'s\n'},
}
WITNESS_PROGRAM = """\
import json, os, sys
from pathlib import Path
files = [Path(os.environ["LAB_FILE"]), Path(sys.argv[6])]
seen = {name: value for name, value in os.environ.items() if name.startswith("LAB_")}
print(json.dumps([sys.argv[1:6], seen, [file.read_text("utf-8") for file in files]]))
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "lab.yaml").write_text(yaml.safe_dump(AGENT))
    return folder


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """Return a folder with a program of the agent's name that prints its arguments, environment and files."""
    program = tmp_path / "bin" / "lab-agent"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{WITNESS_PROGRAM}")
    program.chmod(0o755)
    return program.parent


def run_env(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["env", *arguments])


@pytest.mark.parametrize("shell", ["sh", "fish"])
@pytest.mark.parametrize("key", ["any", "it's \\ $a secret"])
def test_printed_lines_start_the_agent_in_a_shell(
    shell: str, key: str, profiles: Path, witness: Path, tmp_path: Path
) -> None:
    program = shutil.which(shell)
    if not program:
        pytest.skip(f"{shell} is not installed")
    named = [] if key == "any" else ["--key-env", "MY_KEY"]
    result = run_env("lab", "--profiles", str(profiles), "--model", ODD_MODEL_NAME, "--shell", shell, *named)
    assert result.exit_code == 0, result.output
    assert key == "any" or key not in result.output
    variables = {"PATH": f"{witness}:/usr/bin:/bin", "LAB_OWN": "x", "HOME": str(tmp_path), "MY_KEY": key}
    variables |= {"TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run([program, "-c", result.output], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    arguments, seen, (written, toml) = json.loads(done.stdout)
    assert arguments == ["--model", ODD_MODEL_NAME, "--empty", "", "--config"]
    assert "LAB_OWN" not in seen
    assert (seen["LAB_URL"], seen["LAB_KEY"]) == ("http://127.0.0.1:8088/v1", key)
    if key == "any":
        assert json.loads(seen["LAB_JSON"]) == {"models": {ODD_MODEL_NAME: {"key": key}}}
        assert json.loads(written) == {"model": ODD_MODEL_NAME, "key": key}
    else:
        assert key in seen["LAB_JSON"]
        assert key in written
    assert toml == f"model = {json.dumps(ODD_MODEL_NAME)}\n# it's\n"


def test_powershell_gets_its_own_form(profiles: Path) -> None:
    result = run_env(
        "lab", "--profiles", str(profiles), "--model", "it's", "--shell", "powershell", "--key-env", "MY_KEY"
    )
    lines = result.output.splitlines()
    assert lines[0].startswith("$env:VTC_AGENT = Join-Path ")
    assert "$env:LAB_URL = 'http://127.0.0.1:8088/v1'" in lines
    assert "$env:LAB_KEY = $env:MY_KEY" in lines
    assert """$env:LAB_JSON = ('{"models": {"it''s": {"key": "' + $env:MY_KEY + '"}}}')""" in lines
    assert "Remove-Item Env:LAB_OWN -ErrorAction Ignore" in lines
    assert lines[-1] == ("& 'lab-agent' '--model' 'it''s' '--empty' '' '--config' ($env:VTC_AGENT + '/lab.toml')")


def test_an_agent_is_known_by_its_name_and_by_that_of_its_program(profiles: Path) -> None:
    outputs = {
        run_env(name, "--profiles", str(profiles), "--shell", "sh").output for name in ("lab", "LAB", "other-agent")
    }
    assert len(outputs) == 1
    assert run_env("cn", "--shell", "sh").output == run_env("continue", "--shell", "sh").output


def test_the_address_is_that_of_the_settings_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vtc.yaml").write_text("port: 9000\n")
    assert "OPENAI_BASE_URL=http://127.0.0.1:9000/v1\n" in run_env("qwen", "--shell", "sh").output
    assert (
        "OPENAI_BASE_URL='http://[::1]:9001/v1'\n"
        in run_env("qwen", "--shell", "sh", "--host", "::1", "--port", "9001").output
    )


async def test_path_of_the_server_reaches_the_agent_and_a_running_vtc_gives_its_address(start: Start) -> None:
    lab = await start([])
    for url, base in (
        ("http://127.0.0.1:8000", "http://127.0.0.1:8088"),
        ("https://openrouter.ai/api/v1", "http://127.0.0.1:8088/api"),
        (lab.upstream.url, "http://127.0.0.1:8088"),
        (lab.proxy.url, lab.proxy.url),
        (f"{lab.proxy.url}/api/v1/", f"{lab.proxy.url}/api"),
    ):
        result = await asyncio.to_thread(run_env, "qwen", url, "--shell", "sh", "--model", "m")
        assert f"OPENAI_BASE_URL={base}/v1\n" in result.output


@pytest.mark.parametrize("through_vtc", [False, True])
@pytest.mark.parametrize(
    ("models", "model", "window", "note"),
    [
        ([{"id": "qwen3-coder", "max_model_len": 131_072}], "qwen3-coder", "131072", ""),
        ([{"id": "qwen3-coder"}], "qwen3-coder", "", ""),
        (
            [{"id": "a", "max_model_len": 8192}],
            "a",
            "8192",
            "the context window of a has 8,192 tokens, which the prompt",
        ),
        ([{"id": "a"}, {"id": "b"}], "my-model", "", "has multiple models: a, b\nvtc: my-model stands for the name"),
        ([], "my-model", "", "vtc: my-model stands for the name of your model: give it by --model"),
    ],
)
async def test_server_is_asked_for_its_model_and_window(
    models: list[dict[str, object]], model: str, window: str, note: str, through_vtc: bool, start: Start
) -> None:
    def script(seen: Seen) -> Reply:
        is_list = seen.path.endswith("/models")
        body = {"object": "list", "data": models} if is_list else {"error": {"message": "Not Found"}}
        return Reply([json.dumps(body).encode()], JSON, 200 if is_list else 404, framing="length")

    lab = await start(script)
    url = lab.proxy.url if through_vtc else lab.upstream.url
    result = await asyncio.to_thread(run_env, "claude", url, "--shell", "sh")
    asked = [seen.path for seen in lab.upstream.seen]
    assert len(asked) == len({*asked})  # each once, because several facts are in one answer
    assert f"export ANTHROPIC_MODEL={model}\n" in result.stdout
    assert "export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n" in result.stdout
    line = f"export CLAUDE_CODE_AUTO_COMPACT_WINDOW={window}\n"
    assert (line in result.stdout) == bool(window) == ("AUTO_COMPACT_WINDOW" in result.stdout)
    assert note in result.stderr
    others = [line for line in result.stderr.splitlines() if "prove that it is yours" not in line]
    assert bool(note) == bool(others)


def test_login_remains_on_the_makers_own_server() -> None:
    """Unless a model or a key is named, in which case the user wants these."""
    own = run_env("claude", "https://api.anthropic.com", "--shell", "sh")
    assert own.stdout.splitlines() == [
        "export ANTHROPIC_BASE_URL=http://127.0.0.1:8088",
        "export ENABLE_TOOL_SEARCH=true",
        "unset CLAUDE_CODE_USE_BEDROCK",
        "unset CLAUDE_CODE_USE_VERTEX",
        "claude",
    ]
    assert own.stderr == ""
    named = run_env("claude", "https://api.anthropic.com", "--shell", "sh", "--model", "m")
    assert "export ANTHROPIC_MODEL=m\n" in named.stdout


def test_without_a_server_the_name_of_the_model_is_a_placeholder() -> None:
    result = run_env("claude", "--shell", "sh")
    assert "export ANTHROPIC_MODEL=my-model\n" in result.stdout
    assert result.stderr == "vtc: my-model stands for the name of your model: give it by --model\n"
    assert run_env("claude", "--shell", "sh", "--model", "m").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["claude", "http://me:open-sesame@127.0.0.1"], "leave out user and password"),
        (["claude", "http://127.0.0.1:x"], "the port must be from 1 to 65535"),
        (["clude"], "there is no agent 'clude' (did you mean 'claude'?); known: claude, cline, "),
        (["claude", "--key-env", "sk-secret-1"], "give the name of a variable that contains the key, not the key"),
        (["claude", "--shell", "tcsh"], "'tcsh' is not one of 'sh', 'fish', 'powershell'"),
        ([], "Missing argument 'AGENT'"),
    ],
)
def test_mistakes_are_reported(arguments: list[str], problem: str) -> None:
    result = run_env(*arguments)
    assert (result.exit_code, problem in result.output) == (2, True), result.output
    assert "sk-secret" not in result.output


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"arguments": ["{adress}"]}, "lab.yaml:3: arguments[0]: there is no {adress}; what is put in is {address}, "),
        ({"variables": {"A": {"b": ["{modell}"]}}}, "there is no {modell}; what is put in is "),
        ({"variables": {"A-B": "x"}}, "variables: 'A-B' is no name of a variable"),
        ({"files": {"../x": "y"}}, "files: '../x' must be the path of a file inside of the folder"),
        ({"comands": ["x"]}, "comands: unknown key; known here are api, arguments, commands, "),
        ({"api": "openai"}, "lab.yaml:1: api: must be anthropic-messages, "),
        ({"commands": []}, "commands: must not be empty"),
        ({"tried": {"version": "1"}}, "tried.date: missing; add `date: …`"),
    ],
)
def test_faulty_profile_is_reported_with_line_and_key(change: dict[str, object], problem: str, profiles: Path) -> None:
    fields = {"kind": "agent", "name": "lab", "api": "openai-chat", "commands": ["lab"], **change}
    (profiles / "lab.yaml").write_text(yaml.safe_dump(fields))
    result = run_env("claude", "--profiles", str(profiles))
    assert (result.exit_code, problem in result.output) == (1, True), result.output
