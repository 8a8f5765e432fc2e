"""`vtc explain`: which profiles a request gets, what is planned for it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vtc import apis
from vtc.apis import Api, BadRequest
from vtc.cli.common import completing, json_output, loaded, profile_directories, show_json
from vtc.cli.dry_run import call_of, lines, tried
from vtc.events import ToolCall
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Choice, Facts, best, every
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner, Settings


@click.command(short_help="Say what a request gets, and why.")
@profile_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.", shell_complete=completing("models"))
@click.option("--host", default="", help="The model server's host, with or without its port.")
@click.option("--path", default="/v1/chat/completions", show_default=True)
@click.option("--request", type=click.File("rb"), help="A request's body (JSON): says what is planned for it, too.")
@click.option(
    "--flow",
    "flow_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of flows that mitmproxy saved: says it for each of its requests.",
)
@click.option("--call", "written", default="", help="A call (JSON): says what the policies would do to it, too.")
@click.option("--all", "everything", is_flag=True, help="Say of every other profile, too, why it does not match.")
@json_output
def explain(
    directories: tuple[Path, ...],
    user_agent: str,
    model: str,
    host: str,
    path: str,
    request: Any,
    flow_file: Path | None,
    written: str,
    everything: bool,
    as_json: bool,
) -> None:
    """Say which profiles a request gets, what is planned for it, and why.

    The request is told of by its parts, or is one that was saved. With --call nothing is carried out; what it is
    checked against are the tools of the request.
    """
    call = call_of(written) if written else None
    found = loaded(directories)
    name, _, port = host.partition(":")
    facts = Facts(user_agent=user_agent, model=model, host=name, port=int(port or 0), path=path)
    if flow_file:
        explained = [*_of_flows(found, flow_file, call)]
    elif request is not None:
        api = apis.find("POST", path)
        if api is None:
            raise click.BadParameter(f"{path}: no API that VTC knows", param_hint="--path")
        try:
            explained = [_of_body(found, facts, api, request.read(), call)]
        except BadRequest as error:
            raise click.ClickException(str(error)) from None
    else:
        plan = Planner(found, Settings()).plan(facts, apis.APIS[0].request(b'{"messages": []}'))
        explained = [{**_of_facts(found, facts), **_of_call(plan, call)}]
    if as_json:
        show_json(explained if flow_file else explained[0])
        return
    for one in explained:
        _show(one, everything)


def _of_flows(found: Profiles, file: Path, call: ToolCall | None) -> Iterator[dict[str, Any]]:
    from vtc.proxy import flows  # mitmproxy takes a second to load

    try:
        with file.open("rb") as opened:
            for flow in flows.load(opened):
                api = flows.api(flow)
                if api is None:
                    continue
                about = {"flow": f"{flow.request.pretty_host}{flow.request.path.partition('?')[0]}"}
                try:
                    body = flows.original(flow, "request")
                    yield {**about, **_of_body(found, flows.facts(flow), api, body, call)}
                except ValueError as error:
                    yield {**about, "problem": str(error)}
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None


def _of_body(found: Profiles, facts: Facts, api: Api, body: bytes, call: ToolCall | None) -> dict[str, Any]:
    asked = api.request(body)
    facts = replace(facts, model=asked.model, body=asked.fields)
    plan = Planner(found, Settings()).plan(facts, asked)
    return {**_of_facts(found, facts), "plan": list(plan.why), **_of_call(plan, call)}


def _of_call(plan: Plan, call: ToolCall | None) -> dict[str, Any]:
    return {"call": tried(plan.reply.guards, call, plan.tools)} if call else {}


def _of_facts(found: Profiles, facts: Facts) -> dict[str, Any]:
    choices: dict[str, Choice[Any]] = {
        "client": best(found.clients, facts, found.sources),
        "model": best(found.models, facts, found.sources),
        "server": best(found.servers, facts, found.sources),
    }
    policies = [{"profile": policy.name, "why": told} for policy, told in every(found.policies, facts)]
    profiles = {
        kind: {
            "profile": choice.profile.name if choice.profile else None,
            "why": list(choice.why),
            "others": list(choice.others),
        }
        for kind, choice in choices.items()
    }
    return {"policies": policies, **profiles}


def _show(one: dict[str, Any], everything: bool) -> None:
    if "flow" in one:
        click.secho(one["flow"], bold=True, fg="cyan")
    if "problem" in one:
        click.echo(f"  {one['problem']}")
        return
    for policy in one["policies"]:
        click.secho(f"policy: {policy['profile']}", bold=True)
        click.echo(f"  {policy['why']}")
    for kind in ("client", "model", "server"):
        click.secho(f"{kind}: {one[kind]['profile'] or 'none'}", bold=True)
        for line in one[kind]["why"]:
            click.echo(f"  {line}")
        if others := one[kind]["others"]:
            click.secho(f"  {len(others)} others do not match" + ("" if everything else " (--all)"), dim=True)
        for line in others if everything else ():
            click.echo(f"  {line}")
    if "plan" in one:
        click.secho("plan", bold=True)
        for line in one["plan"]:
            click.echo(f"  {line}")
    if "call" in one:
        click.secho("call", bold=True)
        for line in lines(one["call"]):
            click.echo(f"  {line}")
