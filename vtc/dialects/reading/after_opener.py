"""The text after a call's opening tag: parameters between tags or as attributes, or the value of the only one."""

from __future__ import annotations

import re
from typing import Literal

from vtc.dialects.reading.call import BeginsJson, InCall, open_json
from vtc.dialects.reading.call_end import Ended, buffer_call_text
from vtc.dialects.reading.context import Context, TokenMatch, Unread, Verdict
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.reading.value import MAX_GUESS_CHARACTERS, OpenedValue, open_value
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.grammar import ATTRIBUTES_END
from vtc.dialects.syntax.scan import Scan

SEVERAL_LINES_REASON = "lines without tags may be several parameters of its tool"
MAX_TAG_ENDS = 16
"""Maximum positions at which an opening tag with attributes is tried as complete."""
_BEGINS_JSON = re.compile(r'[{"]')


def is_word_of_sentence(context: Context, written: str, head: str, gap: str) -> bool:
    """True if the `written` name after a tag is a word of the sentence: `I write a <tool_call> now.`.

    The `gap` before the JSON contains a line break, no tool of that name is offered, and either no tool can have that
    name or a blank separates it from the tag.
    """
    if "\n" not in gap or not context.tools or tool_names.resolve(written, context.tools):
        return False
    return head[-1:] in " \t" or tool_names.resolve_unoffered(written) is None


type TagEnd = Literal[Verdict.CONTENT] | tuple[Literal[Verdict.CLOSERS], OpenCall]


class AfterOpener(InCall):
    """The text after a call's opening tag: its first parameter, JSON, or its end."""

    __slots__ = ()

    def scan(self) -> Scan:
        return self.context.grammar.scan_arguments(self.call.syntax, self.call.name_in_markup)

    def open_parameter(self, token: TokenMatch) -> OpenedValue | Literal[Verdict.WRAPPED]:
        """Begin the first parameter, or skip an element that wraps all parameters."""
        key = self.call.syntax.dialect.unescape_key(token[f"key_{token.lastgroup}"])
        is_bare_tag = token[0].strip() == f"<{key}>"
        if not (self.context.lenient and is_bare_tag and self.call.parameters.is_wrapper(key)):
            return open_value(self.context, self.call, token)
        self.call.repairs[Repair.ARGUMENTS_KEY] = None
        self.buffer_text(token.end())
        return Verdict.WRAPPED

    def end_empty_call(self, token: TokenMatch) -> Ended:
        """End a call without parameters."""
        if not self.call.may_be_empty:
            return self.abandon_without_parameters()
        return self.end_call(token)

    def skip_orphan_closer(self, token: TokenMatch) -> Unread | None:
        """Skip a parameter's closer that nothing opened."""
        if not self.context.lenient:
            return self.abandon_without_parameters()
        self.call.repairs[Repair.ORPHAN_CLOSER] = None
        self.buffer_text(token.end())
        return None

    def handle_missing_parameters(self) -> Ended | Literal[Verdict.CONTENT] | tuple[Literal[Verdict.SOLE], OpenCall]:
        """Handle the end of the reply or other text in place of parameters."""
        cursor, call = self.context.cursor, self.call
        # Step 1: Split the tool's name if the name of a parameter was written into it.
        if self.context.lenient and (key := call.split_name()):
            cursor.push_back(key)
            return Verdict.CONTENT
        # Step 2: Parse text as the value of the only parameter, unless it is inside an element around the parameters.
        sole = call.sole_parameter if Repair.ARGUMENTS_KEY not in call.repairs else None
        if self.context.lenient and sole and not cursor.is_blank(cursor.at):
            call.parameters.begin(sole, 0)
            return Verdict.SOLE, call
        # Step 3: At the end of the reply, complete a call that needs no parameters.
        closed = Repair.ORPHAN_CLOSER in call.repairs and call.may_be_empty
        ended = cursor.is_blank(cursor.at) and (closed or (call.named.takes_nothing and not call.place.in_line))
        if not ended or not self.repair_at_end(Repair.MISSING_CLOSER):
            return self.abandon_without_parameters()
        return self.end_call(None)

    def end_at_outer_closer(self, token: TokenMatch | None) -> Ended:
        """End a call without parameters and closing tag, since the closing tag of its wrapper follows."""
        if not self.call.named.needs_nothing:
            return self.abandon_without_parameters()
        return self.complete_repaired(Repair.MISSING_CLOSER, token)

    def end_at_next_call(self, _: TokenMatch) -> Ended:
        """End a call without parameters and closing tag, since the next call follows."""
        return self.end_at_outer_closer(None)

    def end_at_wrong_closer(self, token: TokenMatch) -> Ended:
        """End a call without parameters that has a sibling's closing tag instead of its wrapper's."""
        if not self.call.may_be_empty:
            return self.abandon_without_parameters()
        return self.complete_repaired(Repair.WRONG_CLOSER, token)

    def end_self_closing(self) -> Ended:
        """End a call whose opening tag is self-closing."""
        if not self.call.may_be_empty:
            return self.abandon_without_parameters()
        return self.end_call(None)

    def open_json_arguments(self, token: TokenMatch) -> BeginsJson | Unread:
        """Begin JSON in place of parameters, unless the tag before it is a word of a sentence."""
        begins, call = _BEGINS_JSON.search(self.context.cursor.text, token.start()), self.call
        assert begins is not None
        head, gap = call.text.raw.removesuffix(call.written), token.string[token.start() : begins.start()]
        if call.place.in_line and is_word_of_sentence(self.context, call.written, head, gap):
            return self.abandon_without_parameters()
        return open_json(self.context, self.call, begins.start(), token.string[begins.start() : token.end()])


class InSoleValue(InCall):
    """The value of the only parameter that the tool requires, without tags."""

    __slots__ = ()

    def scan(self) -> Scan:
        return self.context.grammar.scan_sole_value(self.call.syntax, self.call.name_in_markup)

    def buffer_value(self, end: int) -> Unread | None:
        """Buffer the possible value of the only parameter that the tool requires."""
        if text := self.context.cursor.consume(end):
            buffer_call_text(self.context, self.call, text, value=True)
        if self.call.syntax.names_the_tag and self.call.text.size > MAX_GUESS_CHARACTERS:
            return self.abandon_without_parameters()
        return None

    def end_value(self, token: TokenMatch) -> Ended:
        """End a call whose only parameter has no tags."""
        if verdict := self.buffer_value(token.start()):
            return verdict
        several = self.call.syntax.names_the_tag and len(self.call.named.declared) > 1
        if several and "\n" in self.call.text.body.strip():
            return self.abandon(SEVERAL_LINES_REASON)
        self.call.end_parameter()
        self.call.repairs[Repair.SOLE_PARAMETER] = None
        return self.end_call(token)

    def handle_tag(self, token: TokenMatch) -> Unread | Literal[Verdict.CONTENT]:
        """Handle a tag in a possible value: it is content if text precedes it and the tool does not declare it."""
        key, cursor = token.groupdict().get(f"key_{token.lastgroup}"), self.context.cursor
        text = self.call.text.body + cursor.text[cursor.at : token.start()]
        if key and key not in self.call.named.declared and text.strip():
            cursor.seek = token.end()
            return Verdict.CONTENT
        return self.buffer_value(token.start()) or self.abandon_without_parameters()


class InAttributes(InCall):
    """An opening tag whose attributes are the parameters."""

    __slots__ = ("_end_count",)

    def __init__(self, context: Context, call: OpenCall) -> None:
        super().__init__(context, call)
        self._end_count = 0
        """Number of possible ends of the tag that were tried."""

    def scan(self) -> Scan:
        return ATTRIBUTES_END

    def end_tag(self, token: TokenMatch) -> Ended | TagEnd:
        """End an opening tag with attributes, unless the token is inside an attribute."""
        cursor, call = self.context.cursor, self.call
        text = call.text.body + cursor.text[cursor.at : token.end()]
        self._end_count += 1
        if self._end_count > MAX_TAG_ENDS:
            return self.abandon(f"its opening tag has more than {MAX_TAG_ENDS} ends")
        if not call.parameters.read_attributes(text):
            cursor.seek = token.start() + 1
            return Verdict.CONTENT
        if text.endswith("/>"):
            return self.end_call(token)
        self.buffer_text(token.end())
        return Verdict.CLOSERS, call
