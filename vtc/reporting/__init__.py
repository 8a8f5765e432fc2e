"""Tell people what was done to an exchange.

Report                      what was done, as plain data; `summarize_report` in a line
Draft, drafted              a draft of the dialect of a reply that none reads
OUTCOMES                    the words, signs and tones for how exchanges end
Bodies, pane, diff          a request or a reply as a page of text: what came in beside what went out
Sample, charts              a conversation as a picture, turn by turn
explained, possible_call    hints: what an error of a server means, and what of a reply looks like a call
Case                        a recorded reply and what it reads as: `read_cases`, `write_case`
"""

from vtc.reporting.case import Case, parse_cases, serialize_case
from vtc.reporting.drafting import Draft, draft_dialect
from vtc.reporting.hints import explain_error, find_possible_call
from vtc.reporting.outcomes import LEFT_ALONE, OUTCOMES, UNDER_WAY, Look
from vtc.reporting.picture import ExchangeSample, draw_charts, pair_lines
from vtc.reporting.plain import validate_report
from vtc.reporting.report import Measures, Parties, Report, count_entries, describe_broken_prefix, summarize_report
from vtc.reporting.view import Bodies, list_sections, render_diff, render_pane

__all__ = [
    "LEFT_ALONE",
    "OUTCOMES",
    "UNDER_WAY",
    "Bodies",
    "Case",
    "Draft",
    "ExchangeSample",
    "Look",
    "Measures",
    "Parties",
    "Report",
    "count_entries",
    "describe_broken_prefix",
    "draft_dialect",
    "draw_charts",
    "explain_error",
    "find_possible_call",
    "list_sections",
    "pair_lines",
    "parse_cases",
    "render_diff",
    "render_pane",
    "serialize_case",
    "summarize_report",
    "validate_report",
]
