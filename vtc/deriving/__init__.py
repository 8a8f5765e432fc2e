"""Derive the dialect of a model from its chat template, or from a reply that no dialect reads.

Both ways try many descriptions on samples and choose the one that reads most.

Draft                          a description with the calls that it reads, and with marks at unsure values
read_samples(dialects, samples, tools)   the calls that dialects read in the samples of a draft
derive_dialect(render, name)   from the differences of replies that a template renders
translate_go_template(source)   the part of a Go template that writes calls, in Jinja
draft_dialect(text, tools, name)   from one reply
draft_response_template(template, name)   from a description of replies by Transformers
build_response_template(dialect, opening_tag, closing_tag)   the other direction: the description of a dialect's replies
KnownCall, KnownReply          a reply whose calls are known; serialize_call to compare them, make_tool for their tools
write_replies, TemplateReplies the texts of replies as a chat template writes them
"""

from vtc.deriving.conversations import KnownCall, KnownReply, TemplateReplies, make_tool, serialize_call, write_replies
from vtc.deriving.drafts import Draft, read_samples
from vtc.deriving.go_template import translate_go_template
from vtc.deriving.replies import draft_dialect
from vtc.deriving.response_template import UnknownFormError, build_response_template, draft_response_template
from vtc.deriving.template import SAMPLE_TOOLS, derive_dialect

__all__ = [
    "SAMPLE_TOOLS",
    "Draft",
    "KnownCall",
    "KnownReply",
    "TemplateReplies",
    "UnknownFormError",
    "build_response_template",
    "derive_dialect",
    "draft_dialect",
    "draft_response_template",
    "make_tool",
    "read_samples",
    "serialize_call",
    "translate_go_template",
    "write_replies",
]
