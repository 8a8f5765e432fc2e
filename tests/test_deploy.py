"""The files to copy: container, unit, rotation of the log, templates for issues."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from vtc.cli import main

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))


def instructions() -> list[tuple[str, str]]:
    """Those of the container file."""
    lines = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name and name != "#"]


def test_the_container_gets_all_that_the_package_is_built_from() -> None:
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY"]
    files = {file for several in copied for file in several}
    assert all((ROOT / file).exists() for file in files)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert files == {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"], *wheel}


def test_the_container_runs_a_python_that_is_tested() -> None:
    (image,) = (rest for name, rest in instructions() if name == "FROM")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"Programming Language :: Python :: {re.findall(r':(3\.\d+)', image)[0]}" in project["classifiers"]


def test_the_container_starts_vtc_and_not_as_root() -> None:
    found = dict(instructions())
    program, *arguments = json.loads(found["ENTRYPOINT"])
    assert program == "vtc"
    done = CliRunner().invoke(main, [*arguments, "--dry-run", "http://host.docker.internal:8000"])
    assert done.exit_code == 0, done.output
    assert f"--listen-port {found['EXPOSE']}" in done.output
    assert found["USER"] != "root"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """As it is, for a user who has the program where `uv tool install` and pipx put it."""
    program = tmp_path / ".local" / "bin" / "vtc"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    command = ["systemd-analyze", "--user", "--man=no", "verify", DEPLOY / "vtc.service"]
    user = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=user)
    ours = [line for line in done.stderr.splitlines() if "vtc.service" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_log_is_rotated() -> None:
    text = (DEPLOY / "vtc.logrotate").read_text("utf-8")
    body = re.fullmatch(r"(?:#.*\n)*\S+vtc\.jsonl \{\n((?:  .+\n)+)\}\n", text)
    assert body
    named = {line.split()[0] for line in body[1].splitlines()}
    # Files are opened for each line: nothing is copied, and no process is told.
    assert {"rotate", "compress", "missingok"} <= named
    assert named.isdisjoint({"copytruncate", "postrotate"})


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.stem)
def test_a_template_for_issues_is_a_form(file: Path) -> None:
    form = yaml.safe_load(file.read_text("utf-8"))
    if file.stem == "config":
        assert {*form} <= {"blank_issues_enabled", "contact_links"}
        return
    assert {*form} == {"name", "description", "body"}
    for field in form["body"]:
        assert field["attributes"]["label"]
        assert field["type"] in ("textarea", "input", "markdown")
