"""`vtc addon-path`: what `mitmdump -s` takes."""

from __future__ import annotations

import click

from vtc.proxy import script


@click.command("addon-path", short_help="Print where the addon lies, for your own mitmproxy.")
def addon_path() -> None:
    """Print the path of the addon's script: `mitmdump -s "$(vtc addon-path)"`.

    mitmproxy must run in the environment that VTC is installed in, or have its packages.
    """
    click.echo(script.path())
