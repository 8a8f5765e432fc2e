"""Tests of `vtc.yaml` by way of `vtc run`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.profiles.test_validation import VALUES
from vtc.cli import config, main
from vtc.cli.config import Config
from vtc.profiles import ProfileError

FULL_CONFIG = """
upstream: http://127.0.0.1:8000
port: 9000
host: 0.0.0.0
profiles: [mine]
tools: prompt
dialect: hermes
log: vtc.jsonl
options: {vtc_lenient: "off", vtc_keep_alive: 5, web_open_browser: false, vtc_client_patterns: [a, b]}
mitmproxy: [-n]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, without settings of the user."""
    monkeypatch.setattr(click, "get_app_dir", lambda _: str(tmp_path / "home"))
    folder = tmp_path / "here"
    (folder / "mine").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", "--dry-run", *arguments])


def build_command(*arguments: str) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return shlex.split(result.output)


def test_all_of_it_goes_to_mitmproxy(here: Path) -> None:
    (here / "vtc.yaml").write_text(FULL_CONFIG)
    found = build_command()
    assert found[found.index("--listen-host") + 1 :][:3] == ["0.0.0.0", "--listen-port", "9000"]
    assert "reverse:http://127.0.0.1:8000" in found
    assert {
        f"vtc_profiles={Path('mine').absolute()}",
        "vtc_tools=prompt",
        "vtc_dialect=hermes",
        "vtc_log=vtc.jsonl",
        "vtc_lenient=off",
        "vtc_keep_alive=5",
        "web_open_browser=false",
        "vtc_client_patterns=a",
        "vtc_client_patterns=b",
    } <= {*found}
    assert "-n" in found


def test_on_and_off_need_no_quotes(here: Path) -> None:
    (here / "vtc.yaml").write_text("options: {vtc_lenient: off, vtc_cache: on, ssl_insecure: true}\n")
    assert {"vtc_lenient=off", "vtc_cache=on", "ssl_insecure=true"} <= {*build_command()}


def test_the_command_line_wins(here: Path) -> None:
    (here / "vtc.yaml").write_text(FULL_CONFIG)
    found = build_command("localhost:1", "--port", "0", "--tools", "native", "--", "--set", "vtc_lenient=on")
    assert "reverse:http://localhost:1" in found
    assert found[found.index("--listen-port") + 1] == "0"
    assert "vtc_tools=native" in found
    assert "vtc_tools=prompt" not in found
    assert found.index("vtc_lenient=on") > found.index("vtc_lenient=off")


def test_one_in_the_users_folder_and_one_that_is_named(here: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "own").mkdir(parents=True)
    (tmp_path / "home" / "vtc.yaml").write_text("upstream: 127.0.0.1:1\nprofiles: [own]\n")
    found = build_command()
    assert "reverse:http://127.0.0.1:1" in found
    assert f"vtc_profiles={tmp_path / 'home' / 'own'}" in found
    (here / "vtc.yaml").write_text("upstream: 127.0.0.1:2\n")
    assert "reverse:http://127.0.0.1:2" in build_command()
    (here / "other.yaml").write_text("")
    assert "--mode" not in build_command("--config", "other.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("upstrem: x\n", "vtc.yaml:1: upstrem: unknown key"),
        ("upstrem: x\n", "did you mean 'upstream'?"),
        ("\nport: high\n", "vtc.yaml:2: port: must be a whole number"),
        ("tools: no\n", "vtc.yaml:1: tools: must be auto, native or prompt"),
        ("a: [\n", "not valid YAML"),
        ("\ndialect: hermez\n", "vtc.yaml:2: dialect: there is no dialect 'hermez' (did you mean 'hermes'?)"),
        ("profiles: [mine, nowhere]\n", "vtc.yaml:1: profiles[1]: nowhere: no such directory"),
        ("upstream: http://127.0.0.1:1/api\n", "vtc.yaml:1: upstream: http://127.0.0.1:1/api: leave out /api"),
        ("upstream: 'http://'\n", "vtc.yaml:1: upstream: http://: not a URL"),
        ("port: 1\napi: chat\n", "vtc.yaml:2: api: there is no API 'chat'"),
        ("server: vlm\n", "vtc.yaml:1: server: there is no server 'vlm' (did you mean 'vllm'?)"),
        ("upstream: '1'\nkey_env: LAB_LACKS\n", "vtc.yaml:2: key_env: the environment has no variable LAB_LACKS"),
        ("options:\n  vtc_lenient: maybe\n", "vtc.yaml:2: options.vtc_lenient: vtc_lenient must be one of"),
        ("options: {vtc_models: {a: b}}\n", "or a list, not a mapping; write [first, second]"),
        ("options: {vtc_models: ['a=b,c=d']}\n", "vtc.yaml:1: options.vtc_models: vtc_models takes one GLOB=NAME"),
        ("mitmproxy: [--set, vtc_tols=x]\n", "vtc.yaml:1: mitmproxy: there is no option vtc_tols"),
        ('profiles: ["a\\0"]\n', "vtc.yaml:1: profiles[0]: contains the character NUL"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_started(text: str, said: str, here: Path) -> None:
    (here / "vtc.yaml").write_text(text)
    result = run()
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output


def test_every_key_says_what_it_is_for() -> None:
    properties = msgspec.json.schema(Config)["$defs"]["Config"]["properties"]
    assert all(key["description"] for key in properties.values())


def test_a_file_with_mistakes_cannot_be_read(here: Path) -> None:
    (here / "vtc.yaml").write_text("a: 1\nb: 2\n")
    with pytest.raises(ProfileError) as refused:
        config.read_config(here / "vtc.yaml")
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize("key", msgspec.structs.fields(config.Config), ids=lambda key: key.name)
def test_any_value_of_any_key_is_taken_or_told(key: msgspec.structs.FieldInfo, tmp_path: Path) -> None:
    file = tmp_path / "vtc.yaml"
    told = list[str]()
    for value in VALUES:
        for written in (value, f"{{a: {value}}}", f"[{value}]"):
            file.write_text(f"{key.name}: {written}\n")
            try:
                config.read_config(file).build_arguments()
            except ProfileError as error:
                told += map(str, error.problems)
    assert len(told) > len(VALUES)
    assert all(one.startswith(f"{file}:1: ") for one in told)
