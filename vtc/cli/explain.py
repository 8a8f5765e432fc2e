"""`vtc explain`: show the profiles and the plan of a request, with reasons."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from vtc import apis
from vtc.apis import Api, RequestError
from vtc.cli.common import (
    build_planner,
    complete_names,
    json_output,
    parse_url,
    profile_directories,
    show_json,
)
from vtc.cli.flags import add_flags
from vtc.events import Call, Denied, Intervention, Rewritten, Tool, ToolCall
from vtc.exchange.asking.corrections import CorrectionScope, read_flags
from vtc.exchange.asking.explanation import RejectedRequest, explain_rejection
from vtc.exchange.asking.quotations import SentText
from vtc.exchange.asking.server_error import read_error
from vtc.exchange.asking.steps import DEFAULT_STEPS
from vtc.guards.chain import Guards, build_chain
from vtc.json_text import decode_json
from vtc.profiles.matching import Facts, list_matching
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ServerProfile
from vtc.reporting import view


def parse_call(text: str) -> ToolCall:
    """Parse `{"name": …, "arguments": {…}}`, also in the form of the API. Raises `click.BadParameter`."""
    problem = ""
    try:
        match decode_json(text.encode()):
            case {"function": {"name": str(name), **rest}} | {"name": str(name), **rest}:
                arguments = rest.get("arguments", {})
                if not isinstance(arguments, str):
                    arguments = json.dumps(arguments, ensure_ascii=False)
                return ToolCall(name, arguments)
    except ValueError as error:
        problem = f": {error}"
    message = f'not a call in the form {{"name": "read", "arguments": {{"path": "a.py"}}}}{problem}'
    raise click.BadParameter(message, param_hint="--call")


def apply_policies(guards: Sequence[Guards], call: ToolCall, tools: Sequence[Tool]) -> dict[str, Any]:
    """Apply policies to a call: `{"policies": [{"policy", "action", "tool", "reason"}…], "outcome": …, "before": …}`.

    The outcome is `delivered`, with `call` as the client receives it, or `refused` if a policy denies the call, with
    `manner` and `message`, which describe its replacement. `before` is text that the policies add in front of it.
    """
    guard = build_chain(guards, {tool.name: tool for tool in tools})
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


def format_outcome(outcome: dict[str, Any]) -> list[str]:
    """Format the outcome of `apply_policies` as lines for people."""
    lines = ["{policy} {action} {tool}: {reason}".format(**decision) for decision in outcome["policies"]]
    if outcome["before"]:
        lines.append(f"the client receives before it: {outcome['before']}")
    if outcome["outcome"] == "delivered":
        lines.append(f"delivered: {outcome['call']['name']} {outcome['call']['arguments']}")
    else:
        replacement = {"drop": "nothing", "text": "its text"}.get(outcome["manner"], outcome["message"])
        lines.append(f"denied; the client receives instead: {replacement}")
    return lines


@click.command(short_help="Show the profiles and the plan of a request, with reasons.")
@profile_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.", shell_complete=complete_names("models"))
@click.option("--host", default="", help="The model server's host, with or without its port.")
@click.option(
    "--path",
    default="/v1/chat/completions",
    show_default=True,
    help="The path of the request, which determines its API.",
)
@add_flags("explain")
@click.option("--request", type=click.File("rb"), help="The body of a request (JSON): show its plan, too.")
@click.option(
    "--flow",
    "flow_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Flows that mitmproxy saved: show the report and the current plan of each.",
)
@click.option("--call", "call_text", default="", help="A tool call (JSON): show what the policies do with it, too.")
@click.option(
    "--rejection",
    type=click.File("rb"),
    help="The body of a server's error (- for standard input): show which rules it matches, instead of the profiles.",
)
@click.option("--status", default=400, show_default=True, help="The status of that error.")
@click.option("--all", "show_all", is_flag=True, help="Also show why each other profile does not match.")
@json_output
def explain(
    directories: tuple[Path, ...],
    user_agent: str,
    model: str,
    host: str,
    path: str,
    request: Any,
    flow_file: Path | None,
    call_text: str,
    rejection: Any,
    status: int,
    show_all: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show which profiles match a request, and its plan, with reasons.

    Describe the request with options, or give its body (--request) or saved flows (--flow). --call shows whether the
    policies would deny a call; nothing is executed. --rejection shows what VTC would do about a server's error in the
    API of --path, by which rule, and why other rules that match do not count. Exits with 1 if the call is denied, if no
    rule counts for the error, or if FILE contains no exchange.
    """
    call = parse_call(call_text) if call_text else None
    plans = build_planner(directories, **options)
    address = parse_url(host, "--host") if host else None
    name, port = (address.hostname or "", address.port or 0) if address else ("", 0)
    if rejection and flow_file:
        raise click.UsageError("--rejection explains one error; give its request with --request, not --flow")
    api = apis.match_request("POST", path)
    if api is None and (request or rejection):
        raise click.BadParameter(f"{path}: not a path of an API that VTC supports", param_hint="--path")
    facts = Facts(user_agent=user_agent, model=model, host=name, port=port, path=path)
    if flow_file:
        explained = [*_explain_flows(plans, flow_file, call)]
        if not explained:
            raise click.ClickException(f"{flow_file}: the file contains no exchange with a model")
    elif api and (request or rejection):
        body = request.read() if request else None
        try:
            if rejection:
                explained = [_explain_rejection(plans, facts, api, body, rejection.read(), status)]
            else:
                explained = [_explain_body(plans, facts, api, body or b"", call)]
        except RequestError as error:
            raise click.ClickException(str(error)) from None
    else:
        plan = plans.plan(facts, apis.APIS[0].request(b'{"messages": []}'))
        explained = [{**_explain_facts(plans, facts), **_explain_call(plan, call)}]
    if as_json:
        show_json(explained if flow_file else explained[0])
    else:
        for explanation in explained:
            _show_explanation(explanation, show_all)
    is_denied = any(explanation.get("call", {}).get("outcome") == "refused" for explanation in explained)
    sys.exit(1 if is_denied or (rejection and not explained[0]["rule"]) else 0)


def _explain_flows(plans: Planner, file: Path, call: ToolCall | None) -> Iterator[dict[str, Any]]:
    """Explain the exchanges in a file of saved flows, each with its recorded report and under its own settings."""
    from vtc.proxy import flows  # mitmproxy takes a second to load

    try:
        with file.open("rb") as opened:
            for flow in flows.load_flows(opened):
                api = flows.find_client_api(flow)
                if api is None and not flows.find_unread_path(flow):
                    continue
                status = f" {flow.response.status_code}" if flow.response else ""
                about: dict[str, Any] = {
                    "flow": f"{flow.request.pretty_host}{flows.format_path(flow)}{status} {flow.id[:8]}",
                    "comment": flow.comment,
                    "done": dict(view.list_sections(flows.get_report(flow) or {})),
                }
                if api is None:
                    yield {**about, "problem": f"left alone: {flows.find_unread_path(flow)}"}
                    continue
                try:
                    body = flows.get_original(flow, "request")
                    yield {
                        **about,
                        **_explain_body(flows.restore_settings(flow, plans), flows.read_facts(flow), api, body, call),
                    }
                except ValueError as error:
                    yield {**about, "problem": str(error)}
    except ValueError as error:
        raise click.ClickException(f"{file}: {error}") from None


def _explain_body(plans: Planner, facts: Facts, api: Api, body: bytes, call: ToolCall | None) -> dict[str, Any]:
    """Explain a request with this body. Raises `RequestError`."""
    request = api.request(body, facts.path)
    facts = replace(facts, model=request.model, body=request.fields)
    plan = plans.plan(facts, request)
    return {**_explain_facts(plans, facts), "plan": list(plan.why), **_explain_call(plan, call)}


def _explain_rejection(
    plans: Planner, facts: Facts, api: Api, body: bytes | None, rejection: bytes, status: int
) -> dict[str, Any]:
    """Explain a server's error about a request. Raises `RequestError`."""
    request = apis.APIS[0].request(b'{"messages": []}') if body is None else api.request(body, facts.path)
    plan = plans.plan(replace(facts, model=request.model or facts.model), request)
    error = read_error(rejection, status, api.name, SentText(decode_json(body)) if body else None)
    scope, known = CorrectionScope(api.layout, plan.stack.policy_paths), {**DEFAULT_STEPS, **plan.steps}
    rules = explain_rejection(error, RejectedRequest(body, read_flags(facts.headers), scope, known))
    found = [msgspec.structs.asdict(rule) for rule in rules]
    place = next((place for place, rule in enumerate(found) if not rule["obstacle"]), len(found))
    return {
        "error": {"status": error.status, "api": api.name, "message": error.message},
        "rule": found[place] if place < len(found) else None,
        "before": found[:place],
        "after": found[place + 1 :],
    }


def _explain_call(plan: Plan, call: ToolCall | None) -> dict[str, Any]:
    return {"call": apply_policies(plan.stack.guards, call, plan.protocol.tools)} if call else {}


def _explain_facts(plans: Planner, facts: Facts) -> dict[str, Any]:
    """List the matching policies, and the chosen profile of each other kind, with reasons."""
    policies = [{"profile": policy.name, "why": why} for policy, why in list_matching(plans.profiles.policies, facts)]
    profiles = {
        kind: {
            "profile": choice.profile.name if choice.profile else None,
            "why": [*choice.why, *_list_needs(choice.profile)],
            "others": list(choice.others),
        }
        for kind, choice in plans.choose_profiles(facts).items()
    }
    return {"policies": policies, **profiles}


def _list_needs(profile: Any) -> list[str]:
    """Return the descriptions of a server profile: the request fields that it changes, and the key that it lends."""
    if not isinstance(profile, ServerProfile):
        return []
    return [*profile.told, *filter(None, [profile.lends])]


def _show_rejection(explanation: dict[str, Any]) -> None:
    click.secho("status {status} of {api}: {message}".format(**explanation["error"]), bold=True)
    if explanation["rule"]:
        _show_rule(explanation["rule"])
    else:
        click.echo("no rule counts: the client receives this error")
    for key, priority in (("before", "higher"), ("after", "lower")):
        if explanation[key]:
            click.secho(f"rules of a {priority} priority that match, too", bold=True)
        for rule in explanation[key]:
            _show_rule(rule)


def _show_rule(rule: dict[str, Any]) -> None:
    click.echo("rule {priority}: {action}".format(**rule))
    if rule["obstacle"]:
        click.echo(f"  it does not count: {rule['obstacle']}")
    if rule["matched"]:
        click.echo('  it matches "{matched}"\n  by {expression}'.format(**rule))
    if rule["source"]:
        click.echo(f"  source: {rule['source']}")


def _show_explanation(explanation: dict[str, Any], show_all: bool) -> None:
    if "error" in explanation:
        _show_rejection(explanation)
        return
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
        if "problem" in explanation or (explanation["done"] and not show_all and "call" not in explanation):
            return  # without --all or --call, only the recorded report of a flow is shown
        click.secho("Current plan", bold=True)
    for policy in explanation["policies"]:
        click.secho(f"policy: {policy['profile']}", bold=True)
        click.echo(f"  {policy['why']}")
    for kind in ("client", "model", "server"):
        click.secho(f"{kind}: {explanation[kind]['profile'] or 'none'}", bold=True)
        for line in explanation[kind]["why"]:
            click.echo(f"  {line}")
        if alternatives := explanation[kind]["others"]:
            noun = "others" if explanation[kind]["profile"] else "profiles"
            click.secho(f"  {len(alternatives)} {noun} do not match" + ("" if show_all else " (--all)"), dim=True)
        for line in alternatives if show_all else ():
            click.echo(f"  {line}")
    if "plan" in explanation:
        click.secho("plan", bold=True)
        for line in explanation["plan"]:
            click.echo(f"  {line}")
    if "call" in explanation:
        click.secho("call", bold=True)
        for line in format_outcome(explanation["call"]):
            click.echo(f"  {line}")
