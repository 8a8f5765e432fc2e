"""The files that the guides contain are valid, and their commands print the output below them.

A block that begins with ```LANGUAGE FILE is a file. A block of ```console is run, page by page, in a folder with those
files and two captures (`flows`, `vtc.jsonl`). In its output a line of `…` matches any lines, and `…` in a line any
text. The commands of ```sh are run as far as a test can: `vtc run` with `--dry-run`, targets of make by name. Text
between `<!-- NAME -->` and `<!-- end -->` is generated. Renew transcripts and generated parts with `VTC_RENEW_DOCS=1
pytest tests/test_docs.py`, then read the diff.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import pytest
from click import Context
from click.testing import CliRunner, Result
from mitmproxy.test import taddons

from tests.apis import chat
from tests.cli.probing.test_command import CASES
from tests.dialects.material import DIALECTS
from tests.e2e.upstream import serving
from tests.exchanges import feed_stream, open_session
from tests.proxy.captures import CALL, save_flows
from vtc.apis import APIS
from vtc.cli import MODULES, main
from vtc.cli.config import Config
from vtc.cli.schema import render_table
from vtc.profiles import builtin_directory, load_profiles
from vtc.profiles.agents import Value, join_phrase
from vtc.proxy import launch
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.addon_settings import SETTINGS

pytestmark = pytest.mark.every

ROOT = Path(__file__).parents[1]
FRONT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^```$", re.M | re.S)
LOGGED = {
    "outcome": "repaired",
    "client": "cline",
    "model": "qwen2.5",
    "calls": [{"name": "read_file", "dialect": "hermes", "repairs": ["missing-closer"]}],
    "sizes": {"request_came": 9120, "request_went": 9120, "reply_came": 4100, "reply_went": 2210},
    "seconds": 0.004,
}
"""A line of a log."""


SERVER = "http://127.0.0.1:8000"


def call_command(arguments: Sequence[str]) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "100"}, prog_name="vtc")


async def call_probe(arguments: Sequence[str]) -> Result:
    """Probe a llama-server that was started without `--jinja`, as if its address were `SERVER`."""
    server, *_ = CASES["llama-server without --jinja, with a thinking model"]
    async with serving(server) as upstream:
        result = await asyncio.to_thread(call_command, [one.replace(SERVER, upstream.url) for one in arguments])
        result.output_bytes = result.output_bytes.replace(upstream.url.encode(), SERVER.encode())
        at, shown = (url.rpartition("/")[2] for url in (upstream.url, SERVER))
        for one, other in ((at, shown), (at.replace(":", "-"), shown.replace(":", "-"))):
            result.output_bytes = result.output_bytes.replace(one.encode(), other.encode())
    return result


def run_command(line: str) -> str:
    """Return the output of a command, followed by its exit code if it is not 0."""
    program, *arguments = shlex.split(line)
    assert program == "vtc", f"only vtc is run here: {line}"
    result = asyncio.run(call_probe(arguments)) if arguments[0] == "probe" else call_command(arguments)
    output = result.output.replace(str(launch.find_script()), "addons/addon.py")
    output = re.sub(r"\S*/bin/mitm", "mitm", output)
    return output + (f"(exit code {result.exit_code})\n" if result.exit_code else "")


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a transcript, each with its output."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def matches(shown: str, output: str) -> bool:
    lines = shown.splitlines(keepends=True)
    parts = [r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*") for line in lines]
    return re.fullmatch("".join(parts), output) is not None


def write_files(text: str) -> None:
    """Write the files that a page contains into the current folder."""
    for block in BLOCK.finditer(text):
        if block["file"]:
            path = Path(block["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], "utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_transcripts_equal_the_printed_output(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text("utf-8")
    if "```console" in text:
        save_flows(tmp_path, "Hello", CALL)
    (tmp_path / "vtc.jsonl").write_text((json.dumps(LOGGED) + "\n") * 3)
    monkeypatch.chdir(tmp_path)
    write_files(text)
    renewed = text
    for block in BLOCK.finditer(text):
        for command, shown in steps(block["text"]) if block["kind"] == "console" else ():
            output = run_command(command)
            if not matches(shown, output):
                assert os.environ.get("VTC_RENEW_DOCS"), f"$ {command}\n{output}"
                renewed = renewed.replace(f"$ {command}\n{shown}", f"$ {command}\n{output}")
    if renewed != text:
        page.write_text(renewed, "utf-8")


GENERATED = re.compile(
    r"^<!-- (?P<name>vtc .*|options|keys of vtc\.yaml|limits of the APIs|unconstrained|agents) -->\n"
    r"(?P<text>.*?)^<!-- end -->$",
    re.M | re.S,
)


def generate_part(name: str) -> str:
    if name.startswith("vtc "):
        return run_command(name)
    if name == "options":
        return option_table()
    if name == "unconstrained":
        return "".join(f"- `{name}`: {one.unconstrained}\n" for name, one in DIALECTS.items() if one.unconstrained)
    if name == "limits of the APIs":
        return limit_table()
    if name == "agents":
        return agent_table()
    return render_table(Config) + "\n"


def option_table() -> str:
    """Return a table of VTC's options in mitmproxy with their help."""
    lines = ["| option | values | |", "|---|---|---|"]
    with taddons.context(VirtualToolCalling()) as context:
        for name, option in sorted(context.options.items()):
            if not name.startswith("vtc_"):
                continue
            default = option.default if isinstance(option.default, str | int) else ", ".join(option.default)
            kind = {int: "a number", str: "a text"}.get(option.typespec, "texts, one `--set` each")
            values = ", ".join(f"`{one}`" for one in option.choices) if option.choices else kind
            default_note = f" (default: `{default}`)" if default != "" else ""
            lines.append(f"| `{name}` | {values}{default_note} | {option.help} |")
    return "\n".join(lines) + "\n"


def agent_table() -> str:
    """Return a table of the settings that connect each agent to VTC, as `vtc env` prints them; tested agents first."""
    values: dict[str, Value] = {"address": "http://127.0.0.1:8088", "model": "my-model", "key": "any", "folder": "DIR"}
    lines = ["| agent | name here | settings that point it at VTC | seen |", "|---|---|---|---|"]
    for agent in sorted(
        load_profiles([builtin_directory()]).agents.values(), key=lambda agent: (not agent.tried, agent.title)
    ):
        setup = agent.setup(values)
        words = [join_phrase(words) for words in setup.arguments]
        parts = [
            f"`{name}={value}`" if len(value := join_phrase(phrase)) < 60 else f"`{name}`, which holds JSON"
            for name, phrase in setup.variables.items()
        ]
        parts += [f"without `{name}`" for name in setup.unset] + [f"`{shlex.join(words)}`"] * bool(words)
        parts += [f"the file `DIR/{name}`" for name in setup.files] + [agent.note] * bool(agent.note)
        seen = f"{agent.tried.version}, {agent.tried.date}" if agent.tried else "from its documentation, not run"
        lines.append(f"| [{agent.title}]({agent.source}) | `{agent.name}` | {'; '.join(parts)} | {seen} |")
    return "\n".join(lines) + "\n"


def limit_table() -> str:
    """Return a table of the fields for limits in each API."""
    tables = [api.layout.limits for api in APIS]
    lines = [f"| | {' | '.join(f'`{api.name}`' for api in APIS)} |", "|---" * (len(APIS) + 1) + "|"]
    for name in dict.fromkeys(name for table in tables for name in table):
        places = [f"`{table[name][0]}`" if name in table else "no field" for table in tables]
        lines.append(f"| `{name}` | {' | '.join(places)} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = renewed = page.read_text("utf-8")
    for part in GENERATED.finditer(text):
        now = generate_part(part["name"])
        if now != part["text"]:
            assert os.environ.get("VTC_RENEW_DOCS"), f"{part['name']}\n{now}"
            renewed = renewed.replace(part[0], f"<!-- {part['name']} -->\n{now}<!-- end -->")
    if renewed != text:
        page.write_text(renewed, "utf-8")


NOT_RUN = ("code", "docker ", "install ", "systemctl ", "export ", "nginx ", "kubectl ")
"""Prefixes of commands of other programs, which a test cannot run."""
INSTALLERS = ("pip install .", "uv tool install .", "pipx inject --include-apps mitmproxy .", "pip wheel --no-deps .")
"""Commands that tests/install/test_install.py runs."""


def shell_commands(text: str) -> Iterator[str]:
    """Yield the commands of a page's shell blocks, without comments, variable assignments and loops around them."""
    for block in BLOCK.finditer(text):
        for line in block["text"].splitlines() if block["kind"] == "sh" else ():
            command = re.sub(r"(^|\s+)#.*$", "", line).strip()
            command = re.sub(r"^(?:[A-Z_]+=\S+ )+", "", command).removesuffix(" &")
            if command and not command.startswith(("for ", "done")):
                yield command


@pytest.mark.parametrize("page", [*FRONT, *PAGES], ids=lambda page: page.stem)
def test_every_command_can_be_called(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text("utf-8")
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)}
    monkeypatch.chdir(tmp_path)
    write_files(text)
    (tmp_path / "my-profiles").mkdir(exist_ok=True)
    for name, value in re.findall(r"^([A-Z_]+)=(\S+) vtc ", text, re.M):
        monkeypatch.setenv(name, value)
    (tmp_path / "vtc-8081.jsonl").write_text(json.dumps(LOGGED) + "\n")
    (tmp_path / "vtc-8082.jsonl").touch()
    for command in [*shell_commands(text), *re.findall(r"`((?:vtc run|make) [^`]*)`", text)]:
        program, *arguments = shlex.split(command.replace("$port", "8081").replace("URL", "http://127.0.0.1:8000"))
        if program == "make":
            assert {one for one in arguments if "=" not in one} <= targets, command
        elif arguments[:1] == ["launch"]:  # it would start an agent, so only the arguments are parsed
            _, launch_command, words = main.resolve_command(Context(main), arguments)
            assert launch_command
            launch_command.make_context("launch", words)
        elif program == "vtc":
            flags = ["--dry-run"] if arguments[0] == "run" else []
            done = CliRunner().invoke(main, [arguments[0], *flags, *arguments[1:]])
            assert done.exit_code == 0, f"{command}\n{done.output}"
        else:
            assert command.startswith((*NOT_RUN, *INSTALLERS)), f"no test runs {command!r}"


@pytest.mark.parametrize("page", [*FRONT, ROOT / "SECURITY.md", *PAGES], ids=lambda page: page.stem)
def test_targets_of_links_exist(page: Path) -> None:
    """Links, images, options and commands of vtc."""
    text = page.read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)", text):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"
    assert {*re.findall(r"\bvtc_[a-z_]+\b", text)} <= {setting.option for setting in SETTINGS}
    for name in set(re.findall(r"^(?:\$ )?vtc ([a-z-]+)", text, re.M)):
        assert name in MODULES, name


def anchors(file: Path) -> set[str]:
    """Return the anchors of a page: its titles as GitHub converts them."""
    titles = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_list() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index


def test_every_command_is_in_the_guide() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    for name in MODULES:
        assert f"## vtc {name}" in page or f", vtc {name}\n" in page, name


def list_entered_files() -> set[str]:
    """Send a request and a streamed reply with a text tool call through a session; return the source files that run.

    Both have run before, so the files that compile a dialect are not among them.
    """
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/vtc/"):
            files.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/vtc/"))

    def run_exchange() -> bytes:
        exchange = open_session(model="qwen2.5")
        exchange.encode_request()
        return feed_stream(exchange.stream(), *chat.make_stream(*texts))

    texts = ("<tool_", 'call>\n{"name": "read", ', '"arguments": {"filePath": "a"}}', "\n</tool_call>")
    assert chat.read(run_exchange()).calls == [("read", {"filePath": "a"})]
    sys.setprofile(note)
    try:
        run_exchange()
    finally:
        sys.setprofile(None)
    return files


def test_the_walk_of_one_call_names_every_file_on_the_way() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    walk = text.partition("## One call, from bytes to bytes")[2].partition("\n## ")[0]
    named = {f"/{name}" for name in re.findall(r"`([\w/]+\.py)`", walk)}
    files = {f"/{path.relative_to(ROOT / 'vtc')}" for path in (ROOT / "vtc").rglob("*.py")}
    assert [name for name in sorted(named) if not any(file.endswith(name) for file in files)] == []
    assert [file for file in sorted(list_entered_files()) if not any(f"/{file}".endswith(name) for name in named)] == []
