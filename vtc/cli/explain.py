"""`vtc explain`: which profiles a request gets, what is planned for it, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vtc import apis
from vtc.apis import Api, BadRequest
from vtc.cli.common import (
    add_forcing_options,
    build_planner,
    build_settings,
    complete_names,
    json_output,
    parse_url,
    profile_directories,
    show_json,
)
from vtc.events import Call, Denied, Intervention, Rewritten, Tool, ToolCall
from vtc.guards.chain import Guards, chain_of
from vtc.json_text import decode
from vtc.profiles.matching import Facts, every
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ServerProfile
from vtc.reporting import view

# What the policies would do to a call: `vtc explain --call`.


def call_of(text: str) -> ToolCall:
    """`{"name": …, "arguments": {…}}`, also in the form of the API; raises `click.BadParameter`."""
    problem = ""
    try:
        match decode(text.encode()):
            case {"function": {"name": str(name), **rest}} | {"name": str(name), **rest}:
                written = rest.get("arguments", {})
                return ToolCall(name, written if isinstance(written, str) else json.dumps(written, ensure_ascii=False))
    except ValueError as error:
        problem = f": {error}"
    problem_text = f'no call, which looks like {{"name": "read", "arguments": {{"path": "a.py"}}}}{problem}'
    raise click.BadParameter(problem_text, param_hint="--call")


def try_call(guards: Sequence[Guards], call: ToolCall, tools: Sequence[Tool]) -> dict[str, Any]:
    """Return the outcome of `call`: `{"policies": [{"policy", "action", "tool", "reason"}…], "outcome": …, …}`.

    The outcome is `delivered`, with the `call` as the client gets it, or `refused`, with what stands in its place as
    `manner` and `message`.
    """
    guard = chain_of(guards, {tool.name: tool for tool in tools})
    events = [*guard.feed(Call("", call, "tool_calls")), *guard.finish()]
    outcome: dict[str, Any] = {
        "policies": [
            {"policy": event.policy, "action": event.action, "tool": event.tool, "reason": event.reason}
            for event in events
            if isinstance(event, Intervention)
        ],
        "before": "".join(event.text for event in events if isinstance(event, Rewritten)).strip(),
    }
    for event in events:
        if isinstance(event, Call):
            arguments = event.call.arguments
            outcome |= {"outcome": "delivered", "call": {"name": event.call.name, "arguments": arguments}}
        elif isinstance(event, Denied):
            outcome |= {"outcome": "refused", "manner": event.manner, "message": event.message}
    return outcome


def lines(outcome: dict[str, Any]) -> list[str]:
    """The same for people."""
    before = ["{policy} {action} {tool}: {reason}".format(**decision) for decision in outcome["policies"]]
    before += [f"before it the client is told: {outcome['before']}"] if outcome["before"] else []
    if outcome["outcome"] == "delivered":
        return [*before, f"delivered: {outcome['call']['name']} {outcome['call']['arguments']}"]
    place = {"drop": "nothing", "text": "its text"}.get(outcome["manner"], outcome["message"])
    return [*before, f"refused; in its place: {place}"]


@click.command(short_help="Say what a request gets, and why.")
@profile_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.", shell_complete=complete_names("models"))
@click.option("--host", default="", help="The model server's host, with or without its port.")
@click.option("--path", default="/v1/chat/completions", show_default=True)
@add_forcing_options
@click.option("--request", type=click.File("rb"), help="A request's body (JSON): says what is planned for it, too.")
@click.option(
    "--flow",
    "flow_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of flows that mitmproxy saved: says what was done to each, and why.",
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
    **options: Any,
) -> None:
    """Say which profiles a request gets, what is planned for it, and why.

    Describe the request with options, or give a saved one. With --call nothing is carried out; what it is checked
    against are the tools of the request. Ends with 1 if the call is refused, or FILE holds no exchange with a model.
    """
    call = call_of(written) if written else None
    plans = build_planner(directories, build_settings(**options))
    at = parse_url(host, "--host") if host else None
    name, port = (at.hostname or "", at.port or 0) if at else ("", 0)
    facts = Facts(user_agent=user_agent, model=model, host=name, port=port, path=path)
    if flow_file:
        explained = [*_of_flows(plans, flow_file, call)]
        if not explained:
            raise click.ClickException(f"{flow_file}: no exchange with a model in it")
    elif request is not None:
        api = apis.match_request("POST", path)
        if api is None:
            raise click.BadParameter(f"{path}: no API that VTC knows", param_hint="--path")
        try:
            explained = [_of_body(plans, facts, api, request.read(), call)]
        except BadRequest as error:
            raise click.ClickException(str(error)) from None
    else:
        plan = plans.plan(facts, apis.APIS[0].request(b'{"messages": []}'))
        explained = [{**_of_facts(plans, facts), **_of_call(plan, call)}]
    if as_json:
        show_json(explained if flow_file else explained[0])
    for explanation in () if as_json else explained:
        _show(explanation, everything)
    sys.exit(1 if any(explanation.get("call", {}).get("outcome") == "refused" for explanation in explained) else 0)


def _of_flows(plans: Planner, file: Path, call: ToolCall | None) -> Iterator[dict[str, Any]]:
    from vtc.proxy import flows  # mitmproxy takes a second to load

    try:
        with file.open("rb") as opened:
            for flow in flows.load_flows(opened):
                api = flows.find_client_api(flow)
                if api is None and not flows.find_unread(flow):
                    continue
                status = f" {flow.response.status_code}" if flow.response else ""
                about: dict[str, Any] = {
                    "flow": f"{flow.request.pretty_host}{flows.format_path(flow)}{status} {flow.id[:8]}",
                    "comment": flow.comment,
                    "done": dict(view.list_sections(flows.get_report(flow) or {})),
                }
                if api is None:
                    yield {**about, "problem": f"left alone: {flows.find_unread(flow)}"}
                    continue
                try:
                    body = flows.get_original(flow, "request")
                    yield {
                        **about,
                        **_of_body(flows.restore_settings(flow, plans), flows.read_facts(flow), api, body, call),
                    }
                except ValueError as error:
                    yield {**about, "problem": str(error)}
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None


def _of_body(plans: Planner, facts: Facts, api: Api, body: bytes, call: ToolCall | None) -> dict[str, Any]:
    request = api.request(body, facts.path)
    facts = replace(facts, model=request.model, body=request.fields)
    plan = plans.plan(facts, request)
    return {**_of_facts(plans, facts), "plan": list(plan.why), **_of_call(plan, call)}


def _of_call(plan: Plan, call: ToolCall | None) -> dict[str, Any]:
    return {"call": try_call(plan.stack.guards, call, plan.protocol.tools)} if call else {}


def _of_facts(plans: Planner, facts: Facts) -> dict[str, Any]:
    policies = [{"profile": policy.name, "why": why} for policy, why in every(plans.profiles.policies, facts)]
    profiles = {
        kind: {
            "profile": choice.profile.name if choice.profile else None,
            "why": [*choice.why, *_needs(choice.profile)],
            "others": list(choice.others),
        }
        for kind, choice in plans.choices(facts).items()
    }
    return {"policies": policies, **profiles}


def _needs(profile: Any) -> list[str]:
    """Say what a server needs, and whose key its clients are lent."""
    return [*profile.told, *filter(None, [profile.lends])] if isinstance(profile, ServerProfile) else []


def _show(explanation: dict[str, Any], everything: bool) -> None:
    if "flow" in explanation:
        click.secho(
            explanation["flow"] + (f": {explanation['comment']}" if explanation["comment"] else ""),
            bold=True,
            fg="cyan",
        )
        for title, text in explanation["done"].items():
            click.secho(title, bold=True)
            for line in text:
                click.echo(f"  {line}")
        if "problem" in explanation:
            click.echo(f"  {explanation['problem']}")
        if "problem" in explanation or (explanation["done"] and not everything and "call" not in explanation):
            return  # what would be planned today is the rest
        click.secho("What would be planned now", bold=True)
    for policy in explanation["policies"]:
        click.secho(f"policy: {policy['profile']}", bold=True)
        click.echo(f"  {policy['why']}")
    for kind in ("client", "model", "server"):
        click.secho(f"{kind}: {explanation[kind]['profile'] or 'none'}", bold=True)
        for line in explanation[kind]["why"]:
            click.echo(f"  {line}")
        if alternatives := explanation[kind]["others"]:
            noun = "others" if explanation[kind]["profile"] else "profiles"
            click.secho(f"  {len(alternatives)} {noun} do not match" + ("" if everything else " (--all)"), dim=True)
        for line in alternatives if everything else ():
            click.echo(f"  {line}")
    if "plan" in explanation:
        click.secho("plan", bold=True)
        for line in explanation["plan"]:
            click.echo(f"  {line}")
    if "call" in explanation:
        click.secho("call", bold=True)
        for line in lines(explanation["call"]):
            click.echo(f"  {line}")
