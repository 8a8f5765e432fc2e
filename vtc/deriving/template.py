"""Derive the dialect of a chat template from the differences of rendered replies.

The replies differ in one thing each: the number of calls, the tool, the values, the text before a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vtc.deriving.bodies import Body, FindBody, list_finders
from vtc.deriving.conversations import KnownCall, KnownReply, Render, TemplateReplies, make_tool, write_replies
from vtc.deriving.differences import Split, get_common_end, split_repeated
from vtc.deriving.drafts import Draft, Sample, count_rendered, derive_conditions, try_draft
from vtc.deriving.slots import (
    BODY,
    ID,
    INDEX,
    NAME,
    NUMBER,
    RESULT,
    cut_at_slot,
    has_slot,
    is_marker,
    make_pattern,
)
from vtc.dialects.syntax.forms import MIN_MARKER_LENGTH
from vtc.events import Tool

_AREA = {"x": {"type": "integer"}, "y": {"type": "string"}}
SAMPLE_TOOLS = (
    make_tool(
        "find_place",
        city={"type": "string"},
        days={"type": "integer"},
        exact={"type": "boolean"},
        ratio={"type": "number"},
        until={"anyOf": [{"type": "string"}, {"type": "null"}]},
        tags={"type": "array", "items": {"type": "string"}},
        area={"type": "object", "properties": _AREA, "additionalProperties": {}},
    ),
    make_tool("send_mail", subject={"type": "string"}, wording={"type": "string"}),
)


def _find(**arguments: Any) -> KnownCall:
    return KnownCall("find_place", arguments, "qvcallaaa")


def _send(subject: str, wording: str) -> KnownCall:
    return KnownCall("send_mail", {"subject": subject, "wording": wording}, "qvcallbbb")


FIRST, SECOND = _find(city="Qabville", days=4711), _send("Hvqgreeting", "Wvqletter")
"""Calls whose names, keys and values no template contains."""
TEXT_BEFORE, REASONING, NEXT = "Vqz look.", "Vqz thought.", "Vqz next."
REPLIES: Mapping[str, KnownReply] = {
    "one call": KnownReply([FIRST]),
    "two calls": KnownReply([FIRST, SECOND]),
    "three calls": KnownReply([SECOND, FIRST, _find(city="Rstown")]),
    "another tool": KnownReply([SECOND]),
    "one argument": KnownReply([_find(city="Qabville")]),
    "no arguments": KnownReply([_find()]),
    "a boolean and a number": KnownReply([_find(exact=True, ratio=2.5)]),
    "null": KnownReply([_find(city="Qabville", until=None)]),
    "a list and an object": KnownReply([_find(tags=["a", "b c"], area={"x": 1, "y": "z"})]),
    "quotes": KnownReply([_send('a "b" c', "{d: 'e'}")]),
    "lines and markup": KnownReply([_send("f &amp; g", "h <i>j</i>\n\nk < l && m")]),
    "text before": KnownReply([FIRST], TEXT_BEFORE),
}
"""Replies that a draft must read."""
CONTEXTS: Mapping[str, KnownReply] = {
    "reasoning": KnownReply([FIRST], reasoning=REASONING),
    "a result": KnownReply([FIRST], next_role="tool", next_text=NEXT),
    "a question": KnownReply([FIRST], next_role="user", next_text=NEXT),
}
"""Replies that show the markup around calls."""
SPECIAL_TOKEN = re.compile(r"<[|｜][^<>]*[|｜]>")
TYPED_VALUES = {"values": "typed"}
TYPED_TAG = re.compile(r"<[\w:.-]+ [^<>]*\{type\}")
"""Matches a parameter whose tag states the type of its value."""
VALUE_STYLES = ({"values": "python"}, {"values": "repr"}, {"values": "nested"}, TYPED_VALUES)
FURTHER_KEYS = (*VALUE_STYLES, {"cdata": True}, {"entities": True}, {"frame": "multiline"})
"""Keys that are added to a draft if it then reads more."""
MAX_RENDERED_DRAFTS = 6
"""Maximum number of drafts that also write the replies."""
OWN_PROMPT = "the template has its own; this one is for servers that do not pass tools to the template"
NO_RESULT = "the template does not show results in this form"
ONE_CALL = "the template writes one call in a reply; the text between two calls is not known"


def derive_dialect(render: Render, name: str) -> Draft | None:
    """Derive the dialect of the calls that a template writes; None if it writes none."""
    written = write_replies(render, SAMPLE_TOOLS, {**REPLIES, **CONTEXTS})
    tools = {tool.name: tool for tool in SAMPLE_TOOLS}
    texts = {of: written.texts[of] for of in REPLIES if of in written.texts}
    samples = [Sample(text, REPLIES[of].calls, REPLIES[of].text) for of, text in texts.items()]
    drafts = [try_draft(draft, samples, tools, name) for draft in _list_drafts(written)]
    if not drafts:
        return None
    draft = _choose_draft(drafts, samples, tools)
    result = derive_result(written.texts)
    unsure = {"prompt": OWN_PROMPT, **draft.unsure, **({} if result else {"result": NO_RESULT})}
    notes = [
        f"The draft reads {draft.exact} of {len(samples)} replies of the template exactly.",
        *([f"A reply ends with {written.turn_end.strip()}."] if written.turn_end.strip() else []),
        *describe_reasoning(written.texts, written.prompt_end),
    ]
    sample = texts.get("two calls") or texts["one call"]
    return replace(
        draft, keys={**draft.keys, **result}, unsure=unsure, source="this chat template", sample=sample, notes=notes
    )


def _choose_draft(drafts: Sequence[Draft], samples: Sequence[Sample], tools: Mapping[str, Tool]) -> Draft:
    """Choose the draft that reads the most replies; of these, one that is sure, loose about JSON, and writes them."""
    most = max((not draft.problem, draft.exact) for draft in drafts)
    best = [draft for draft in drafts if (not draft.problem, draft.exact) == most]
    best.sort(key=lambda draft: _rate_form(draft, tools), reverse=True)
    best = [draft for draft in best if bool(draft.unsure) == bool(best[0].unsure)]
    rendered = {at: count_rendered(draft, samples, tools) for at, draft in enumerate(best[:MAX_RENDERED_DRAFTS])}
    at = max(rendered, key=lambda at: rendered[at])
    draft, count = best[at], rendered[at]
    for keys in FURTHER_KEYS if count < len(samples) else ():
        if keys == TYPED_VALUES and not TYPED_TAG.match(draft.keys.get("param", "")):
            continue
        changed = try_draft(replace(draft, keys={**draft.keys, **keys}), samples, tools, draft.keys["name"])
        changed_count = count_rendered(changed, samples, tools)
        if (changed.exact, changed_count) > (draft.exact, count):
            draft, count = changed, changed_count
    return draft


def _rate_form(draft: Draft, tools: Mapping[str, Tool]) -> tuple[Any, ...]:
    return (
        not draft.unsure,
        "{json}" in draft.keys["call"],
        -len(draft.keys["separator"].strip()),
        draft.rank(tools),
    )


def _list_drafts(written: TemplateReplies) -> Iterator[Draft]:
    """List possible descriptions of the replies."""
    one, two = (written.texts.get(of, "") for of in ("one call", "two calls"))
    for find in list_finders(one, FIRST):
        body = find(one, 0, FIRST)
        assert body is not None
        if two and (parts := _split_at_bodies(two, [FIRST, SECOND], find)):
            for split in split_repeated(*parts):
                yield from _make_drafts(split, body, {}, written.prompt_end)
        if parts := _split_at_bodies(one, [FIRST], find):
            yield from _make_drafts(
                Split("", parts[0], parts[1], "\n", ""), body, {"call": ONE_CALL}, written.prompt_end
            )


def _split_at_bodies(text: str, calls: Sequence[KnownCall], find: FindBody) -> list[str]:
    """Split a text at the bodies of its calls, with placeholders for names, ids and indices; empty if one lacks."""
    parts: list[str] = []
    at = 0
    for call in calls:
        if (body := find(text, at, call)) is None:
            return []
        parts.append(text[at : body.start])
        at = body.end
    parts.append(text[at:])
    for call in calls:
        parts = [part.replace(call.name, NAME).replace(call.id, ID) for part in parts]
    return _replace_indices(parts)


def _replace_indices(parts: Sequence[str]) -> list[str]:
    """Replace the number of a call before its body, if all calls have one."""
    for first, slot in ((0, INDEX), (1, NUMBER)):
        numbered = [re.sub(rf"(?<![\w.]){first + at}(?![\w.])", slot, part) for at, part in enumerate(parts[:-1])]
        if len(parts) > 2 and all(slot in part for part in numbered):
            return [*numbered, parts[-1]]
    return [*parts]


def _make_drafts(split: Split, body: Body, unsure: Mapping[str, str], prompt_end: str) -> Iterator[Draft]:
    """Make the drafts for one split: calls with a marker count with or without their section."""
    if any(map(has_slot, (split.before, split.separator, split.after))):
        return
    opener = split.opener
    if opener.count(NAME) > 1:  # the name is in the markup before the call, too
        opener = opener[opener.rindex("<", 0, opener.rindex(NAME)) :] if "<" in opener else opener
    keys = {
        "call": make_pattern(opener + BODY + split.closer).replace(BODY, body.slot),
        **body.keys,
        "separator": split.separator,
    }
    marker = cut_at_slot(opener + BODY)
    # The prompt may end with the beginning of the first call.
    begin = split.separator
    if begin.strip() and prompt_end.endswith(begin) and not split.before.strip():
        prompted = {"call": make_pattern(begin) + keys["call"], "separator": "", "prompted": begin, "names": "declared"}
        yield Draft({**keys, **prompted}, unsure)
    # Markup that only follows the calls ends the turn, and servers remove it.
    if not split.before.strip() and is_marker(marker):
        yield Draft({**keys, **derive_conditions(marker)}, unsure)
        return
    if not split.before.strip() and marker.strip()[:1].isalpha():  # a word, as in any text
        anchor = {} if SPECIAL_TOKEN.search(opener) else {"anchor": "line", "ends_reply": True}
        yield Draft({**keys, "names": "declared", **anchor}, unsure)
        return
    keys["section"] = make_pattern(split.before) + "{calls}" + make_pattern(split.after)
    if not is_marker(marker):
        keys["section_required"] = True
        if not is_marker(split.before):
            keys["names"] = "declared"
        if len(split.before.strip()) < MIN_MARKER_LENGTH:
            keys["section_anchor"] = "message"
    yield Draft(keys, unsure)


def derive_result(texts: Mapping[str, str]) -> dict[str, Any]:
    """Derive the form of a tool's result from the turn after a call; empty if it is not known.

    The turn of a question shows the markup of a message of the user.
    """
    call, result, question = (texts.get(of, "") for of in ("one call", "a result", "a question"))
    if not (call and NEXT in result and NEXT in question):
        return {}
    before, _, after = result.removeprefix(call).partition(NEXT)
    head, _, tail = question.removeprefix(call).partition(NEXT)
    if not before.startswith(head):  # a turn of a role of its own, whose markup the template writes
        return {"result": "{result}", "result_role": "tool"}
    pattern = before.removeprefix(head) + RESULT + after.removesuffix(tail)
    return {"result": make_pattern(pattern.replace(FIRST.name, NAME).replace(FIRST.id, ID)).strip("\n")}


def describe_reasoning(texts: Mapping[str, str], prompt_end: str) -> Iterator[str]:
    """Describe the tags of reasoning as a key of the model's profile, if the template writes plain ones."""
    before, thought, after = texts.get("reasoning", "").partition(REASONING)
    close = after.removesuffix(get_common_end(after, texts.get("one call", ""))).strip()
    tags: dict[str, Any] = {"open": before.strip(), "close": close}
    if thought and not tags["open"]:
        tags["open"] = prompt_end.strip()[prompt_end.strip().rfind("<") :]
        tags["prefilled"] = True
    is_plain = all(tag.count("<") == 1 for tag in (tags["open"], close)) and not tags["open"].startswith("</")
    if is_plain:
        yield f"In the profile of the model: reasoning: {json.dumps(tags, ensure_ascii=False)}"
