"""Fixtures for the tests with real agents.

Each agent has one test module in this folder. Its project contains a file with a random secret word, and its model
(`model_server.py`) reads that file by a text tool call: the agent prints the word only if it executed the call.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.agents.model_server import ScriptedModel, serve
from tests.agents.processes import proxy

PROMPT = "Read hello.txt and tell me the secret word"


@dataclass(frozen=True, slots=True)
class Project:
    """A new home and working directory for one run of an agent."""

    home: Path
    directory: Path
    word: str = field(default_factory=lambda: f"word-{secrets.token_hex(6)}")

    @property
    def file(self) -> Path:
        return self.directory / "hello.txt"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "home", tmp_path / "project")
    project.home.mkdir()
    project.directory.mkdir()
    project.file.write_text(f"The secret word is {project.word}.\n")
    return project


class Network:
    """Starts servers that run until the end of the test."""

    def __init__(self, stack: ExitStack, confdir: Path) -> None:
        self._stack = stack
        self._confdir = confdir

    def model(self, model: ScriptedModel) -> str:
        """Serve the model; return its URL, without a path."""
        return self._stack.enter_context(serve(model))

    def vtc(self, upstream: str, *settings: str) -> str:
        """Start mitmdump with the addon in front of `upstream`; return its URL, without a path."""
        return self._stack.enter_context(proxy(f"reverse:{upstream}", self._confdir, *settings))

    def https_proxy(self, host: str, upstream: str, *settings: str) -> dict[str, str]:
        """Run mitmdump with the addon as a proxy, and let `upstream` answer for a host; return an agent's environment.

        The variables contain the proxy's address and the trusted certificate.
        """
        to_upstream = f"map_remote=|^https://{host}/|{upstream}/"
        url = self._stack.enter_context(
            proxy("regular", self._confdir, "connection_strategy=lazy", to_upstream, *settings)
        )
        certificate = str(self._confdir / "mitmproxy-ca-cert.pem")
        return {"HTTPS_PROXY": url, "SSL_CERT_FILE": certificate, "NODE_EXTRA_CA_CERTS": certificate}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(stack, tmp_path / "mitmproxy")
