"""Each documented way to install VTC, into a fresh environment, from the package index: `make test-install`.

`SHOWN` contains the commands of the README, with `…` for the folder of this checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSIONS = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
BIN = "Scripts" if os.name == "nt" else "bin"


def python(version: str) -> str:
    """Return a Python of this version; skip the test if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for command in (f"python{version}", sys.executable, *pyenv.glob(f"{version}.*/bin/python3")):
        ask = [str(command), "-c", "import sys; print('%d.%d %s' % (*sys.version_info[:2], sys.executable))"]
        try:
            found = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue
        if found[0] == version:
            return found[1]
    pytest.skip(f"no Python {version} here")


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Return the output of a command; fail if its exit code is not 0."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**clean, **environment}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def environment(folder: Path, python: str) -> Path:
    """Return the folder with the programs of a fresh virtual environment."""
    run(python, "-m", "venv", folder)
    return folder / BIN


def works(programs: Path, folder: Path) -> None:
    """Check that profiles and addon are installed: a mitmdump of these programs loads them."""
    assert run(programs / "vtc", "--version", cwd=folder).split()[-1] == "0.1.0"
    assert run(programs / "vtc", "check", cwd=folder).startswith("ok: ")
    script = Path(run(programs / "vtc", "run", "--dry-run", "x:1", cwd=folder).split(" -s ")[1].split()[0])
    assert ROOT not in script.parents
    loads(programs / "mitmdump", script, folder)


def loads(mitmdump: Path, script: Path, folder: Path) -> None:
    """Check that mitmdump stops at a wrong value, which only the addon rejects."""
    command = [mitmdump, "-s", script, "--listen-port", "0", "--set", f"confdir={folder}", "--set", "vtc_mode=wrong"]
    done = subprocess.run([*map(str, command)], cwd=folder, text=True, capture_output=True)
    assert "vtc_mode must be one of rewrite, observe, off" in done.stdout + done.stderr


def test_the_versions_of_python_are_bounded_by_those_that_are_tested() -> None:
    first, last = VERSIONS[0], VERSIONS[-1]
    after = f"3.{int(last.partition('.')[2]) + 1}"
    assert PROJECT["requires-python"] == f">={first},<{after}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    assert "pip wheel --no-deps ." in README
    venv.create(folder / "build", with_pip=True)
    run(folder / "build" / BIN / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT)
    return next(folder.glob("virtual_tool_calling-*.whl"))


@pytest.mark.install
@pytest.mark.parametrize("version", VERSIONS)
def test_pip_install_of_a_clone(version: str, tmp_path: Path) -> None:
    assert "pip install ." in README
    programs = environment(tmp_path / "venv", python(version))
    run(programs / "python", "-m", "pip", "install", "--quiet", ".", cwd=ROOT)
    works(programs, tmp_path)


@pytest.mark.install
def test_a_wheel(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", sys.executable)
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel)
    works(programs, tmp_path)
    assert "| `name` (needed) |" in run(programs / "vtc", "schema", "--markdown", cwd=tmp_path)  # from the source
    page = (
        "from mitmproxy.addons.view import View; from vtc.proxy.showing.page import rendering, rows\n"
        "print(rendering.render_overview(View(), {}, rows.ExchangeRows()))\n"
        "print(*map(rendering.read_asset, ('page.css', 'page.js', 'list.css')))"
    )
    assert "no exchange yet" in run(programs / "python", "-c", page, cwd=tmp_path)


@pytest.mark.install
def test_the_steps_of_the_container(tmp_path: Path) -> None:
    """Its files, its installation and its start run without a container engine; its user is not created."""
    lines = (ROOT / "deploy" / "Containerfile").read_text("utf-8").splitlines()
    steps = [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]
    (image,) = (rest for name, rest in steps if name == "FROM")
    programs = environment(tmp_path / "venv", python(re.findall(r"python:(3\.\d+)", image)[0]))
    source = tmp_path / "src"
    source.mkdir()
    for copied, to in ((rest.split()[:-1], rest.split()[-1]) for name, rest in steps if name == "COPY"):
        for one in copied:
            if (ROOT / one).is_dir():
                shutil.copytree(ROOT / one, source / to)
            else:
                shutil.copy(ROOT / one, source / to)
    install, remove, user = next(rest for name, rest in steps if name == "RUN").split(" && ")
    run(programs / "python", "-m", *install.split(), cwd=source)
    assert (remove, user.split()[0]) == ("rm -rf /src", "useradd")
    shutil.rmtree(source)
    works(programs, tmp_path)
    program, *arguments = json.loads(next(rest for name, rest in steps if name == "ENTRYPOINT"))
    command = [programs / program, *arguments, "--port", "0", "http://127.0.0.1:9"]
    started = subprocess.Popen([*map(str, command)], cwd=tmp_path, text=True, stdout=PIPE, stderr=STDOUT,
                               env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    assert started.stdout
    with started:
        assert any("listening at *:" in line or "listening at 0.0.0.0:" in line for line in started.stdout)
        started.terminate()


@pytest.mark.install
def test_pipx_inject(tmp_path: Path) -> None:
    assert "pipx inject --include-apps mitmproxy ." in README
    tools = environment(tmp_path / "tools", sys.executable)
    run(tools / "python", "-m", "pip", "install", "--quiet", "pipx")
    homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    homes["PIPX_DEFAULT_PYTHON"] = python(VERSIONS[0])
    run(tools / "pipx", "install", "--quiet", "mitmproxy<13", **homes)
    run(tools / "pipx", "inject", "--quiet", "--include-apps", "mitmproxy", ".", cwd=ROOT, **homes)
    loads(tmp_path / "bin" / "mitmdump", ROOT / "addons" / "addon.py", tmp_path)
    program, _, script = run(tmp_path / "bin" / "vtc", "run", "--dry-run", cwd=tmp_path).split()[:3]
    loads(Path(program), Path(script), tmp_path)


@pytest.mark.install
def test_uv_tool_install(tmp_path: Path) -> None:
    assert "uv tool install ." in README
    tools = environment(tmp_path / "tools", sys.executable)
    run(tools / "python", "-m", "pip", "install", "--quiet", "uv")
    homes = {"UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    homes |= {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_PREFERENCE": "only-system"}
    run(tools / "uv", "tool", "install", "--quiet", "--python", python(VERSIONS[0]), ".", cwd=ROOT, **homes)
    works_as_tool = tmp_path / "bin" / "vtc"
    assert run(works_as_tool, "check", cwd=tmp_path).startswith("ok: ")
    program, _, script = run(works_as_tool, "run", "--dry-run", cwd=tmp_path).split()[:3]
    loads(Path(program), Path(script), tmp_path)


@pytest.mark.install
def test_the_demonstration_needs_no_more_than_its_extra(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", sys.executable)
    run(programs / "python", "-m", "pip", "install", "--quiet", ".[demo]", cwd=ROOT)
    assert "the agent finished its task" in run(programs / "vtc", "demo", cwd=tmp_path)
