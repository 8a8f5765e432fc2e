"""The report of an exchange: VTC's actions, recorded as plain data and summarized in one line for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from glob import escape as as_glob
from typing import Any, Literal

from vtc.events import UnreadCall
from vtc.profiles.document import format_count
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.scrub import escape_invisible, scrub_data, scrub_text

type Outcome = Literal["failed", "error", "denied", "refused", "unread", "repaired", "rewritten", ""]

DENYING_ACTIONS = ("refused", "stopped", "dropped", "exhausted")
"""Actions of policies that stop a call or a whole request."""
MAX_ENTRIES = 100
"""Maximum number of entries of one kind. Further ones are only counted, because a reply may hold thousands of calls."""
MAX_SUMMARY_POLICIES = 5
"""Maximum number of policy entries in the summary."""
OTHERS = "(others)"
"""The name in an entry that counts those over the maximum."""
MAX_SUMMARY_PART_CHARS = 500
"""Maximum length of one part of the summary."""
MAX_LISTED_CHANGES_CHARS = 64
"""Maximum length of a list of the request's changes; longer lists are replaced by their number."""

MAX_MODEL_NAME_CHARS = 64
"""Maximum length of the name of a model without a profile."""
MAX_SUMMARY_TOOLS = 4
"""Maximum number of tool names in the summary."""
LEFT_AS_TEXT, LEFT_OUT = "left as text", "left out"
"""Fates of text that began like a call but is not one."""


def serialize_unread_call(call: UnreadCall) -> dict[str, Any]:
    """Serialize an unread call as a report entry."""
    keys = ("reason", "dialect", "name", "excerpt", "left_out")
    return {key: getattr(call, key) for key in keys}


def describe_fate(entry: Mapping[str, Any]) -> str:
    """Describe the fate of the unread text: it stayed text, or was left out."""
    return LEFT_OUT if entry.get("left_out") else LEFT_AS_TEXT


def choose_model_name(profile: str, asked: str) -> str:
    """Choose a model's name for people: the name of its profile, or the requested name if no profile knows it."""
    if profile != UNKNOWN_MODEL.name or not asked:
        return profile
    return asked if len(asked) <= MAX_MODEL_NAME_CHARS else f"{asked[: MAX_MODEL_NAME_CHARS - 1]}…"


@dataclass(slots=True)
class Parties:
    """The parties of an exchange, and the APIs between them."""

    client: str = ""
    """The client profile's name."""
    model: str = ""
    """The model profile's name."""
    asked: str = ""
    """The model's name in the request."""
    server_model: str = ""
    """The model requested from the server; empty if it is the same."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The user's options that differ from their defaults."""
    api: str = ""
    """The client's API."""
    server_api: str = ""
    """The server's API; empty if it is the client's."""
    form: str = "tool_calls"
    """The form in which the client receives calls: `tool_calls`, or the dialect of a client that parses text."""

    def record_server_facts(self, *, prompted: bool, api: str) -> None:
        """Record facts learned about the server as settings, so that a replay uses them.

        They are the server's `api`, the model, and whether the tools are in the prompt (`prompted`).
        """
        if api:
            self.settings = {**self.settings, "upstream_api": [api]}
        if prompted:
            self.settings = {"tools": "prompt", **self.settings}
        if self.server_model or "models" in self.settings:
            models = [f"{as_glob(self.asked)}={self.server_model}"] if self.server_model else []
            self.settings = {**self.settings, "models": models}


@dataclass(slots=True)
class Measures:
    """The figures of an exchange."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the decoded bodies by `request_came`, `request_went`, `reply_came` and `reply_went`, if known."""
    seconds: float = 0.0
    """Time spent in VTC."""
    elapsed: float = 0.0
    """Seconds from the first byte of the request to the last byte of the reply."""


@dataclass(slots=True)
class Report:
    """VTC's actions in one exchange; `as_dict` returns them as plain data."""

    parties: Parties = field(default_factory=Parties)
    why: list[str] = field(default_factory=list)
    """Reasons of the plan's decisions."""
    request: list[str] = field(default_factory=list)
    """Changes of the request. The summary only counts them, because they are the same in each turn of an agent."""
    notes: list[str] = field(default_factory=list)
    """Other facts about this exchange: quirks learned from a rejection, parts of the reply that the client's API cannot
    express."""
    prefix: dict[str, Any] = field(default_factory=dict)
    """The part of the conversation's last prompt that this prompt preserves: `{"kept": 14, "of": 20, "chars": 9120,
    "chars_of": 81034, "what": "system", "how": "changed", "at": 812, "before": …, "now": …}`. `kept` and `of` count
    messages; `chars` counts characters of tools and messages up to the break, `chars_of` all that could be preserved.
    The keys from `what` on are set only if the prefix broke; the last two quote it. Empty for the first prompt."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """`{"name": "read", "id": …, "dialect": "hermes", "repairs": […], "lacks": […]}`, with a `count` if the entry
    denotes more than one call. `lacks` names missing required parameters; most calls do not have this key."""
    refusals: list[dict[str, Any]] = field(default_factory=list)
    """`{"reason": …, "dialect": …, "name": …, "excerpt": …}`, with a `count` if the entry denotes more than one."""
    policies: list[dict[str, Any]] = field(default_factory=list)
    """Actions of policies: `{"policy": "denied_tools", "action": "refused", "tool": "bash", "reason": …, "count": 1}`;
    a `detail` quotes the model."""
    failures: list[str] = field(default_factory=list)
    """Errors in VTC."""
    errors: list[str] = field(default_factory=list)
    """Server errors that were received instead of a reply, with an explanation if there is one."""
    unread: dict[str, str] = field(default_factory=dict)
    """A possible call that no dialect reads, if no call was found (`hints.PossibleCall`)."""
    measures: Measures = field(default_factory=Measures)
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Credentials of the request, which are scrubbed from everything that is reported."""
    _known: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    """Entries with a count, by the fields that must be equal to count as the same."""

    @property
    def outcome(self) -> Outcome:
        """The most serious outcome; empty if nothing was done."""
        actions = {entry["action"] for entry in self.policies}
        if self.failures or "failed" in actions:
            return "failed"
        if self.errors:
            return "error"
        if actions.intersection(DENYING_ACTIONS):
            return "denied"
        if self.refusals:
            return "refused"
        if self.unread:
            return "unread"
        if self.repaired:
            return "repaired"
        parties = self.parties
        changed = self.calls or self.request or self.notes or parties.server_api or parties.server_model
        return "rewritten" if changed or actions - {"told"} else ""

    @property
    def repaired(self) -> int:
        """The number of repaired calls."""
        return count_entries(call for call in self.calls if call["repairs"])

    def record_call(
        self, name: str, id_: str | None, dialect: str, repairs: Sequence[str], lacks: Sequence[str] = ()
    ) -> None:
        """Record a call that is sent to the client; `lacks` names the required parameters that it does not have."""
        entry = {"name": name, "id": id_, "dialect": dialect, "repairs": [*repairs]}
        entry |= {"lacks": [*lacks]} if lacks else {}
        self._add_entry(self.calls, entry, {**entry, "name": OTHERS, "id": None, "repairs": [*repairs[:1]]})

    def record_unread_call(self, call: UnreadCall) -> None:
        """Record text that began like a call but is not one."""
        entry = serialize_unread_call(call)
        self._add_entry(self.refusals, entry, {**entry, "reason": OTHERS, "name": "", "excerpt": ""})

    def record_intervention(self, policy: str, action: str, tool: str = "", reason: str = "", detail: str = "") -> None:
        """Record an action of a policy, or count it if it is already recorded."""
        entry = {"policy": policy, "action": action, "tool": tool, "reason": reason}
        entry |= {"detail": detail} if detail else {}
        if len(self.policies) < MAX_ENTRIES or _make_key(self.policies, entry) in self._known:
            self._count_entry(self.policies, entry)
        else:
            self._count_entry(self.policies, {"policy": policy, "action": action, "tool": OTHERS, "reason": ""})

    def _add_entry(self, entries: list[dict[str, Any]], entry: dict[str, Any], counted: dict[str, Any]) -> None:
        """Add an entry; if there are too many, count it under `counted`, which has fewer details."""
        if len(entries) < MAX_ENTRIES:
            entries.append(entry)
        else:
            self._count_entry(entries, counted)

    def _count_entry(self, entries: list[dict[str, Any]], entry: dict[str, Any]) -> None:
        known = self._known.get(key := _make_key(entries, entry))
        if known is None:
            known = self._known[key] = {**entry, "count": 0}
            entries.append(known)
        known["count"] += 1

    def add_reply(self, reply: Report) -> None:
        """Add the entries of the reply's report."""
        self.calls += reply.calls
        self.refusals += reply.refusals
        self.failures += reply.failures
        self.errors += reply.errors
        self.policies += reply.policies
        self.notes += reply.notes

    def summarize(self) -> str:
        """Summarize the report in one line (`summarize_report`), scrubbed of secrets; empty if nothing was done."""
        line = summarize_report(self._collect_fields())
        return escape_invisible(scrub_text(f"vtc: {line}", self.secrets)) if line else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data, scrubbed of secrets, because excerpts quote the model."""
        return escape_invisible(scrub_data(self._collect_fields(), self.secrets))

    def _collect_fields(self) -> dict[str, Any]:
        separate = ("parties", "measures", "secrets", "_known")
        names = [entry.name for entry in fields(self) if entry.name not in separate]
        return asdict(self.parties) | {name: getattr(self, name) for name in names} | asdict(self.measures)


def summarize_report(report: Mapping[str, Any]) -> str:
    """Summarize a report given as plain data, for example a line of a log; empty if nothing was done.

        read x2, 1 repaired (json-cut), hermes -> tool_calls, +2 changes of the request

    Facts that differ between exchanges come first, because a list of flows shows only the beginning.
    """
    parts = [*_describe_calls(report.get("calls", ()))]
    refusals, policies = report.get("refusals", ()), report.get("policies", ())
    for label in (LEFT_AS_TEXT, LEFT_OUT):
        if matching := [refusal for refusal in refusals if describe_fate(refusal) == label]:
            parts.append(f"{count_entries(matching)} {label} ({matching[0]['reason']})")
    for entry in policies[:MAX_SUMMARY_POLICIES]:
        times = f" {entry['count']} times" if entry["count"] > 1 else ""
        tool = f" {entry['tool']}" if entry["tool"] else ""
        reason = f" ({entry['reason']})" if entry["reason"] else ""
        parts.append(f"{entry['policy']} {entry['action']}{tool}{times}{reason}")
    if more := policies[MAX_SUMMARY_POLICIES:]:
        parts.append(f"{count_entries(more)} more by policies")
    if unread := report.get("unread"):
        parts.append(describe_unread_call(unread))
    parts += [f"error in VTC: {failure}" for failure in report.get("failures", ())]
    parts += report.get("errors", ())
    if broken := describe_broken_prefix(report.get("prefix", {})):
        parts.append(broken)
    parts += report.get("notes", ())
    form = report.get("form", "tool_calls")
    dialects = dict.fromkeys(call["dialect"] for call in report.get("calls", ()))
    if names := [dialect for dialect in dialects if dialect != form]:
        parts.append(f"{', '.join(names)} -> {form}")
    if pair := format_api_pair(report):
        parts.append(pair)
    if changes := summarize_changes(report.get("request", ())):
        parts.append(changes)
    if not parts and (server_model := report.get("server_model")):
        parts.append(f"the server is asked for {server_model}")
    return ", ".join(
        part if len(part) <= MAX_SUMMARY_PART_CHARS else f"{part[:MAX_SUMMARY_PART_CHARS]}…" for part in parts
    )


def _describe_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """List the called tools, the repairs, and the calls without required arguments."""
    tools: Counter[str] = Counter()
    for call in calls:
        tools[call["name"]] += call.get("count", 1)
    names = [f"{name} x{times}" if times > 1 else name for name, times in tools.items()]
    yield from names[:MAX_SUMMARY_TOOLS]
    if len(names) > MAX_SUMMARY_TOOLS:
        yield f"{len(names) - MAX_SUMMARY_TOOLS} more"
    if repaired := count_entries(call for call in calls if call["repairs"]):
        repairs = dict.fromkeys(repair.partition(":")[0] for call in calls for repair in call["repairs"])
        yield f"{repaired} repaired ({', '.join(repairs)})"
    for name in dict.fromkeys(call["name"] for call in calls if call.get("lacks")):
        yield f"{name} lacks what its tool requires"


def describe_unread_call(unread: Mapping[str, str] | bool) -> str:
    """Report a possible call that was not read; of the model's words, quote the tool's name alone.

    In logs, `unread` is only `True`.
    """
    if not isinstance(unread, Mapping):
        return "a possible call was not read"
    advice = f" ({unread['advice']})" if unread["advice"] else ""
    return f"a possible call was not read: {unread['begins']} …{advice}"


def format_api_pair(report: Mapping[str, Any]) -> str:
    """Format the two APIs of a bridge, the client's first; empty if there is one API."""
    return f"{report.get('api', '')} -> {server_api}" if (server_api := report.get("server_api")) else ""


def summarize_changes(changes: Sequence[str]) -> str:
    """List the changes of a request if the list is short, else return their number; empty if there are none."""
    if not changes:
        return ""
    return list_changes(changes) or f"+{format_count(len(changes), 'change')} of the request"


def list_changes(changes: Sequence[str]) -> str:
    """List the changes of a request; empty if the list is too long."""
    line = ", ".join(changes)
    return line if len(line) <= MAX_LISTED_CHANGES_CHARS else ""


def describe_broken_prefix(prefix: Mapping[str, Any]) -> str:
    """Describe the position and cause of a break of the prompt's prefix; empty if it did not break."""
    if not prefix.get("what"):
        return ""
    how = prefix.get("how", "")
    how = f"{how} at {prefix.get('at', 0):,}" if how == "changed" else how
    return f"prompt cache usable to message {prefix['kept']} of {prefix['of']}: {prefix['what']} {how}"


def count_entries(entries: Iterable[Mapping[str, Any]]) -> int:
    """Sum the counts of entries of a report."""
    return sum(entry.get("count", 1) for entry in entries)


def _make_key(entries: object, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (id(entries), *map(str, entry.values()))
