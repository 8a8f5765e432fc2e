"""`vtc demo`: see it work, without a model or a client of one's own."""

from __future__ import annotations

import importlib.util
import sys

import click

from vtc.proxy import launch


@click.command(short_help="Show one turn of an agent through the proxy.")
@click.option("--web", is_flag=True, help="In mitmweb, which stays open until Ctrl-C.")
def demo(web: bool) -> None:
    """Show one turn of an agent: what the model wrote beside what the client received.

    A scripted model server, mitmproxy with VTC and a client on the official OpenAI SDK run on this machine; nothing
    else is asked. Ends with 1 if the agent did not get through.
    """
    if importlib.util.find_spec("openai") is None:
        raise click.ClickException(
            f"the demonstration needs the package openai: {launch.format_install_command('openai')}"
        )
    from vtc.demo import show  # mitmproxy takes a second to load

    sys.exit(0 if show.show(web=web) else 1)
