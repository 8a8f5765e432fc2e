"""Record what was done to one exchange, for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from glob import escape as as_glob
from typing import Any, Literal

from vtc.events import Refusal
from vtc.profiles.document import format_count
from vtc.profiles.settings import UNKNOWN_MODEL
from vtc.scrub import escape_invisible, scrub, scrub_data

type Outcome = Literal["failed", "error", "denied", "refused", "unread", "repaired", "rewritten", ""]

DENYING_ACTIONS = ("refused", "stopped", "dropped", "exhausted")
"""What policies do that leaves a call, or a whole request, undone."""
MAX_ENTRIES = 100
"""Entries of one kind. More are counted in one that names none: a reply may hold thousands of calls."""
MAX_SUMMARY_POLICIES = 5
"""Of these in the one line for people."""
OTHERS = "(others)"
MAX_SUMMARY_PART_CHARS = 500
"""Characters of one thing that is told in it."""
MAX_LISTED_CHANGES_CHARS = 64
"""Of changes that are named in it rather than counted."""

MAX_MODEL_NAME_CHARS = 64
"""Characters of the name of a model that no profile knows."""
MAX_SUMMARY_TOOLS = 4
"""Names of tools that a summary has."""
LEFT_AS_TEXT, LEFT_OUT = "left as text", "left out"
"""What becomes of the text of what looked like a call and is none."""


def serialize_refusal(refusal: Refusal) -> dict[str, Any]:
    """Write what looked like a call and is none as plain data."""
    keys = ("reason", "dialect", "name", "excerpt", "left_out")
    return {key: getattr(refusal, key) for key in keys}


def describe_fate(entry: Mapping[str, Any]) -> str:
    """Say what became of its text."""
    return LEFT_OUT if entry.get("left_out") else LEFT_AS_TEXT


def choose_model_name(profile: str, asked: str) -> str:
    """Return the name by which a model is told: that of its profile, or else the one that was asked."""
    if profile != UNKNOWN_MODEL.name or not asked:
        return profile
    return asked if len(asked) <= MAX_MODEL_NAME_CHARS else f"{asked[: MAX_MODEL_NAME_CHARS - 1]}…"


@dataclass(slots=True)
class Parties:
    """The parties of an exchange, and how they speak."""

    client: str = ""
    """The client profile's name."""
    model: str = ""
    """The model profile's name."""
    asked: str = ""
    """The model's name in the request."""
    server_model: str = ""
    """The model that the server was asked for, where that is another."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the user's options set, where that is not the default."""
    api: str = ""
    """The API that the client speaks."""
    server_api: str = ""
    """The API that the server is spoken to in, where that is not the client's."""
    form: str = "tool_calls"
    """What calls become: `tool_calls`, or the dialect of a client that reads text."""

    def record_server_facts(self, *, prompted: bool, api: str) -> None:
        """Keep as settings what the server showed, for a replay: its API, the model, and where the tools are."""
        if api:
            self.settings = {**self.settings, "upstream_api": [api]}
        if prompted:
            self.settings = {"tools": "prompt", **self.settings}
        if self.server_model or "models" in self.settings:
            kept = [f"{as_glob(self.asked)}={self.server_model}"] if self.server_model else []
            self.settings = {**self.settings, "models": kept}


@dataclass(slots=True)
class Measures:
    """The figures of an exchange."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of `request_came`, `request_went`, `reply_came` and `reply_went`, decoded, as far as they were seen."""
    seconds: float = 0.0
    """Time spent in VTC."""
    elapsed: float = 0.0
    """Seconds from the request's first byte to the reply's last."""


@dataclass(slots=True)
class Report:
    """The account of what VTC did to one exchange, for people to read; `as_dict` is plain data."""

    parties: Parties = field(default_factory=Parties)
    why: list[str] = field(default_factory=list)
    request: list[str] = field(default_factory=list)
    """How the request was changed. An agent's is changed in the same way in each turn: lines for people count these."""
    notes: list[str] = field(default_factory=list)
    """What else is to be known of this exchange: what a refusal taught, what of the reply no client's field holds."""
    prefix: dict[str, Any] = field(default_factory=dict)
    """What the prompt keeps of the last one of its conversation: `{"kept": 14, "of": 20, "chars": 9120, "chars_of":
    81034, "what": "system", "how": "changed", "at": 812, "before": …, "now": …}`. `kept` are messages, `chars` those of
    tools and messages up to the break, of all that might have been kept. From `what` on only where it broke; the last
    two quote it. Empty for the first prompt."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """`{"name": "read", "id": …, "dialect": "hermes", "repairs": […], "lacks": […]}`, with a `count` where one stands
    for several. `lacks` names required parameters that are not there; most calls have no such key."""
    refusals: list[dict[str, Any]] = field(default_factory=list)
    """`{"reason": …, "dialect": …, "name": …, "excerpt": …}`, with a `count` where one stands for several."""
    policies: list[dict[str, Any]] = field(default_factory=list)
    """What policies did: `{"policy": "denied_tools", "action": "refused", "tool": "bash", "reason": …, "count": 1}`;
    a `detail` quotes the model."""
    failures: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What came in the place of a reply, and what that means."""
    unread: dict[str, str] = field(default_factory=dict)
    """What looks like a call in no dialect that is read, where nothing else was found (`hints.PossibleCall`)."""
    measures: Measures = field(default_factory=Measures)
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """What the request carries as a credential: it is in nothing that is told."""
    _known: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    """Entries that count, by what makes them the same."""

    @property
    def outcome(self) -> Outcome:
        """The one word for what was done, the most serious first; empty when nothing was."""
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
        return count_entries(call for call in self.calls if call["repairs"])

    def record_call(
        self, name: str, id_: str | None, dialect: str, repairs: Sequence[str], lacks: Sequence[str] = ()
    ) -> None:
        """Note a call that the client is given; it `lacks` parameters that its tool requires."""
        entry = {"name": name, "id": id_, "dialect": dialect, "repairs": [*repairs]}
        entry |= {"lacks": [*lacks]} if lacks else {}
        self._add_entry(self.calls, entry, {**entry, "name": OTHERS, "id": None, "repairs": [*repairs[:1]]})

    def record_refusal(self, refusal: Refusal) -> None:
        """Note what looked like a call and is none."""
        entry = serialize_refusal(refusal)
        self._add_entry(self.refusals, entry, {**entry, "reason": OTHERS, "name": "", "excerpt": ""})

    def record_intervention(self, policy: str, action: str, tool: str = "", reason: str = "", detail: str = "") -> None:
        """Note what a policy did; what it did before is counted."""
        entry = {"policy": policy, "action": action, "tool": tool, "reason": reason}
        entry |= {"detail": detail} if detail else {}
        if len(self.policies) < MAX_ENTRIES or _make_key(self.policies, entry) in self._known:
            self._count_entry(self.policies, entry)
        else:
            self._count_entry(self.policies, {"policy": policy, "action": action, "tool": OTHERS, "reason": ""})

    def _add_entry(self, entries: list[dict[str, Any]], entry: dict[str, Any], counted: dict[str, Any]) -> None:
        """Add an entry, or count it as another one of its kind."""
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
        """Take over what was done to a reply."""
        self.calls += reply.calls
        self.refusals += reply.refusals
        self.failures += reply.failures
        self.errors += reply.errors
        self.policies += reply.policies
        self.notes += reply.notes

    def summarize(self) -> str:
        """Sum it up in a line (`summarize_report`), scrubbed of secrets; empty when nothing was done."""
        line = summarize_report(self._collect_fields())
        return escape_invisible(scrub(f"vtc: {line}", self.secrets)) if line else ""

    def as_dict(self) -> dict[str, Any]:
        """Write it as plain data, scrubbed of secrets: an excerpt is the model's text."""
        return escape_invisible(scrub_data(self._collect_fields(), self.secrets))

    def _collect_fields(self) -> dict[str, Any]:
        apart = ("parties", "measures", "secrets", "_known")
        names = [entry.name for entry in fields(self) if entry.name not in apart]
        return asdict(self.parties) | {name: getattr(self, name) for name in names} | asdict(self.measures)


def summarize_report(report: Mapping[str, Any]) -> str:
    """Sum up a report that is plain data, a line of a log, too: `read x2, 1 repaired (json-cut), hermes -> tool_calls,
    +2 changes of the request`; empty when nothing was done.

    First what differs from one exchange to the next: a list of flows shows the beginning.
    """
    parts = [*_describe_calls(report.get("calls", ()))]
    refusals, policies = report.get("refusals", ()), report.get("policies", ())
    for label in (LEFT_AS_TEXT, LEFT_OUT):
        if alike := [refusal for refusal in refusals if describe_fate(refusal) == label]:
            parts.append(f"{count_entries(alike)} {label} ({alike[0]['reason']})")
    for entry in policies[:MAX_SUMMARY_POLICIES]:
        times = f" {entry['count']} times" if entry["count"] > 1 else ""
        of = f" {entry['tool']}" if entry["tool"] else ""
        why = f" ({entry['reason']})" if entry["reason"] else ""
        parts.append(f"{entry['policy']} {entry['action']}{of}{times}{why}")
    if more := policies[MAX_SUMMARY_POLICIES:]:
        parts.append(f"{count_entries(more)} more by policies")
    parts += [describe_unread_call(unread)] if (unread := report.get("unread")) else []
    parts += [f"error in VTC: {failure}" for failure in report.get("failures", ())]
    parts += report.get("errors", ())
    parts += [broken] if (broken := describe_broken_prefix(report.get("prefix", {}))) else []
    parts += report.get("notes", ())
    form = report.get("form", "tool_calls")
    dialects = dict.fromkeys(call["dialect"] for call in report.get("calls", ()))
    if names := [dialect for dialect in dialects if dialect != form]:
        parts.append(f"{', '.join(names)} -> {form}")
    parts += [pair] if (pair := format_api_pair(report)) else []
    parts += [changes] if (changes := summarize_changes(report.get("request", ()))) else []
    if not parts and (server_model := report.get("server_model")):
        parts.append(f"the server is asked for {server_model}")
    return ", ".join(
        part if len(part) <= MAX_SUMMARY_PART_CHARS else f"{part[:MAX_SUMMARY_PART_CHARS]}…" for part in parts
    )


def _describe_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say which tools were called, what was repaired, and what calls lack."""
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
    """Say which call may be one that was not read, in no more of the model's words than the name of the tool.

    A log (`True`) has none of them.
    """
    if not isinstance(unread, Mapping):
        return "a possible call was not read"
    advice = f" ({unread['advice']})" if unread["advice"] else ""
    return f"a possible call was not read: {unread['begins']} …{advice}"


def format_api_pair(report: Mapping[str, Any]) -> str:
    """Name the APIs that an exchange was translated between, the client's first; empty if it was not."""
    return f"{report.get('api', '')} -> {server_api}" if (server_api := report.get("server_api")) else ""


def summarize_changes(changes: Sequence[str]) -> str:
    """Say how many changes of a request there are, or name them if that is as short."""
    return list_changes(changes) or f"+{format_count(len(changes), 'change')} of the request" * bool(changes)


def list_changes(changes: Sequence[str]) -> str:
    """Name the changes of a request; empty if that is long."""
    line = ", ".join(changes)
    return line if len(line) <= MAX_LISTED_CHANGES_CHARS else ""


def describe_broken_prefix(prefix: Mapping[str, Any]) -> str:
    """Say where the prompt broke and by what; empty if it did not."""
    if not prefix.get("what"):
        return ""
    how = prefix.get("how", "")
    how = f"{how} at {prefix.get('at', 0):,}" if how == "changed" else how
    return f"prompt cache usable to message {prefix['kept']} of {prefix['of']}: {prefix['what']} {how}"


def count_entries(entries: Iterable[Mapping[str, Any]]) -> int:
    """Count what some entries of a report stand for."""
    return sum(entry.get("count", 1) for entry in entries)


def _make_key(entries: object, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return (id(entries), *map(str, entry.values()))
