"""The models of a server, as `vtc launch` and `vtc env` tell them to an agent."""

from __future__ import annotations

import click

from vtc.cli.probing.server_facts import learn_server_facts
from vtc.profiles.loader import Profiles
from vtc.profiles.schema import API_NAMES
from vtc.proxy.asking import findings
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.trust import DEFAULT_TRUST, Trust


class OnceAsker(Asker):
    """Asker that sends each question once, because several facts are in the same list of models."""

    def __init__(self, url: str, *, key: str = "", trust: Trust = DEFAULT_TRUST) -> None:
        super().__init__(url, key=key, trust=trust)
        self._answers: dict[tuple[str, bytes | None], ServerAnswer] = {}

    def ask(self, question: ServerQuestion) -> ServerAnswer:
        asked = question.path, question.body
        if asked not in self._answers:
            self._answers[asked] = super().ask(question)
        return self._answers[asked]


MIN_WINDOW_TOKENS = 16_000
"""Smallest context window in which an agent can work: its prompt alone takes some 10,000 tokens."""


def list_models(asker: Asker, profiles: Profiles, chosen: str | None = None) -> list[str]:
    """List the models of a server.

    Raise `ClickException` if it does not answer, or if none is `chosen` and its answer shows why it lists none.
    """
    identity = findings.identify_server(asker, profiles)
    names = identity.models or (findings.list_models(asker, API_NAMES) if identity.is_available else ())
    if not identity.is_available or (identity.has_problem and not (names or chosen)):
        raise click.ClickException(identity.message)
    return [*names]


def find_window(asker: Asker, profiles: Profiles, model: str) -> str:
    """Return the context window of a model in tokens; empty if the server does not state it. Warn of a small one."""
    tokens = learn_server_facts(asker, profiles, model=model, chosen_apis=API_NAMES, server_name="").context
    if 0 < tokens < MIN_WINDOW_TOKENS:
        click.echo(
            f"vtc: the context window of {model} has {tokens:,} tokens, which the prompt of an agent nearly fills: "
            "enlarge it at the server",
            err=True,
        )
    return str(tokens or "")
