"""The deployment files: container, compose, Kubernetes, systemd unit, log rotation, issue templates."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from vtc.cli import main

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file."""
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


def runs(arguments: Sequence[str]) -> str:
    """Return the command that the container runs with these arguments."""
    _, *first = json.loads(dict(instructions())["ENTRYPOINT"])
    done = CliRunner().invoke(main, [*first, *arguments, "--dry-run"])
    assert done.exit_code == 0, done.output
    return done.output


def servers() -> list[str]:
    """Return the addresses of the workers in the nginx configuration."""
    return re.findall(r"^ +server (127\.0\.0\.1:\d+);", (DEPLOY / "nginx.conf").read_text("utf-8"), re.M)


def test_compose_takes_its_files(tmp_path: Path) -> None:
    """Validate the compose files, the one for several workers and the one in the guide, with check-jsonschema."""
    page = (ROOT / "docs" / "running.md").read_text("utf-8")
    shown = tmp_path / "compose.yaml"
    shown.write_text(re.findall(r"^```yaml compose.yaml\n(.*?)^```", page, re.M | re.S)[0], "utf-8")
    checking = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*checking, DEPLOY / "compose.yaml", shown], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_compose_starts_the_workers_that_nginx_knows() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    workers = {name: one for name, one in services.items() if "command" in one}
    assert {*services["nginx"]["depends_on"]} == {*workers}
    at = []
    for one in workers.values():
        *arguments, server = one["command"]
        command = runs([*arguments, re.sub(r"\$\{\w+:-(.*)\}", r"\1", server)])
        (found,) = re.findall(r"--listen-host (\S+) --listen-port (\d+)", command)
        assert f"create_connection(('{found[0]}', {found[1]})" in one["healthcheck"]["test"][-1]
        at.append(":".join(found))
    assert at == servers()
    shared = services["network"]
    assert shared["build"] == {"context": "..", "dockerfile": "deploy/Containerfile"}
    (published,) = shared["ports"]
    assert published == "127.0.0.1:8088:8088"
    assert "listen 8088;" in (DEPLOY / "nginx.conf").read_text("utf-8")
    assert all(one["network_mode"] == "service:network" for name, one in services.items() if name != "network")


NO_QUERY = {
    "$remote_addr",
    "$time_local",
    "$request_method",
    "$uri",
    "$status",
    "$body_bytes_sent",
    "$request_time",
} | {
    "$upstream_addr",
    "$upstream_status",
}
"""Variables of nginx that contain no part of a query."""


def test_no_query_is_logged_by_the_proxy_in_front() -> None:
    """Queries can contain keys; nginx logs errors with whole requests, so only errors during the start are logged."""
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    formats = dict(re.findall(r"^ *log_format (\w+) '(.*)';$", text, re.M))
    logs = re.findall(r"\baccess_log (.*);", text)
    assert logs
    assert all(one.split()[1] in formats for one in logs)
    data = resources()["ConfigMap"]["data"]
    for one in (*formats.values(), data["log-format"]):
        assert {*re.findall(r"\$\w+", one)} <= NO_QUERY
    assert [one.split()[-1] for one in re.findall(r"\berror_log (.*);", text)] == ["emerg"]
    assert data["error-log-level"] == "emerg"


def test_every_container_of_compose_has_bounds() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    for name, one in services.items():
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert one["read_only"] is True, name
        assert one["mem_limit"], name
        assert one["pids_limit"], name


KUBERNETES = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))


def resources() -> dict[str, Any]:
    """Return the resources of the manifests by kind."""
    found = [one for file in KUBERNETES for one in yaml.safe_load_all(file.read_text("utf-8"))]
    assert len({one["kind"] for one in found}) == len(found)
    return {one["kind"]: one for one in found}


@pytest.mark.parametrize("file", KUBERNETES, ids=lambda file: file.stem)
def test_kubernetes_takes_the_manifests(file: Path) -> None:
    """Validate against the oldest and the newest schema that knows all keys; an unknown key is an error."""
    for one in yaml.safe_load_all(file.read_text("utf-8")):
        for version in ("1.32", "1.37"):
            kubernetes_validate.validate(one, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**one, "specs": {}}, "1.37", strict=True)


def test_the_manifests_fit_each_other_and_the_container() -> None:
    found = resources()
    deployment, service = found["Deployment"]["spec"], found["Service"]["spec"]
    pod = deployment["template"]["spec"]
    (worker,) = pod["containers"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        one["matchLabels"] for one in (deployment["selector"], found["PodDisruptionBudget"]["spec"]["selector"])
    ]
    assert all(one == labels for one in (*selectors, service["selector"]))
    (port,), (served,) = worker["ports"], service["ports"]
    assert f"--listen-port {port['containerPort']}" in runs(worker["args"])
    probes = [worker[f"{name}Probe"] for name in ("startup", "readiness", "liveness")]
    assert all(one["tcpSocket"]["port"] == served["targetPort"] == port["name"] for one in probes)
    target = found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", found["Deployment"]["metadata"]["name"])
    assert "replicas" not in deployment  # the autoscaler sets them
    assert pod["terminationGracePeriodSeconds"] > worker["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in dict(instructions())["RUN"]
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert {*policy["policyTypes"]} == {"Ingress", "Egress"}
    assert [one["ports"] for one in policy["ingress"]] == [[{"port": port["name"]}]]
    assert all(one["from"] for one in policy["ingress"])
    assert f":{policy['egress'][0]['ports'][0]['port']}" in worker["args"][-1]
    (rule,) = found["Ingress"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    backend = path["backend"]["service"]
    assert (backend["name"], backend["port"]["name"]) == (found["Service"]["metadata"]["name"], served["name"])


def test_the_way_in_chooses_workers_as_nginx_does() -> None:
    """F5's ingress controller accepts `hash`, one string of variables and `consistent`."""
    method = resources()["Ingress"]["metadata"]["annotations"]["nginx.org/lb-method"].split(" ")
    (chosen,) = re.findall(r'hash "(\S+)" consistent;', (DEPLOY / "nginx.conf").read_text("utf-8"))
    assert method == ["hash", chosen, "consistent"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """Verify the unit as it is, for a user who installed the program with `uv tool install` or pipx."""
    program = tmp_path / ".local" / "bin" / "vtc"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    command = ["systemd-analyze", "--user", "--man=no", "verify", DEPLOY / "vtc.service"]
    user = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=user)
    ours = [line for line in done.stderr.splitlines() if "vtc.service" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_unit_confines_the_service() -> None:
    lines = (DEPLOY / "vtc.service").read_text("utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert (found["ProtectSystem"], found["ProtectHome"], found["NoNewPrivileges"]) == ("strict", "read-only", "true")
    assert found["ReadWritePaths"] == "%h/.mitmproxy"
    assert found["MemoryMax"]


def test_the_log_is_rotated() -> None:
    text = (DEPLOY / "vtc.logrotate").read_text("utf-8")
    body = re.fullmatch(r"(?:#.*\n)*\S+vtc\.jsonl \{\n((?:  .+\n)+)\}\n", text)
    assert body
    named = {line.split()[0] for line in body[1].splitlines()}
    # Log files are opened for each line, so nothing is copied and no process is signalled.
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
