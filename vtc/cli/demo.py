"""`vtc demo`: a demonstration that needs neither a model nor a client."""

from __future__ import annotations

import importlib.util
import sys

import click

from vtc.proxy import launch


@click.command(short_help="Show one turn of an agent through the proxy.")
@click.option("--web", is_flag=True, help="Use mitmweb as the proxy; it stays open until Ctrl-C.")
def demo(web: bool) -> None:
    """Show one turn of an agent: the model's text next to the reply that the client received.

    A scripted model server, mitmproxy with VTC and a client with the official OpenAI SDK run on this machine; no other
    server is used. Exits with 1 if the agent did not succeed.
    """
    if importlib.util.find_spec("openai") is None:
        raise click.ClickException(
            f"the demonstration needs the package openai: {launch.format_install_command('openai')}"
        )
    from vtc.demo import show  # imported here because mitmproxy takes a second to load

    sys.exit(0 if show.run_demo(web=web) else 1)
