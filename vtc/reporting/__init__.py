"""Tell people what was done to an exchange.

Report                      what was done, as plain data; `summed_up` in a line
Draft, drafted              a draft of the dialect of a reply that none reads
OUTCOMES                    the words, signs and tones for how exchanges end
Bodies, pane, diff          a request or a reply as a page of text: what came in beside what went out
Sample, charts              a conversation as a picture, turn by turn
explained, possible_call    hints: what an error of a server means, and what of a reply looks like a call
Case                        a recorded reply and what it reads as: `read_cases`, `write_case`
"""

from vtc.reporting.case import Case, read_cases, write_case
from vtc.reporting.drafting import Draft, draft_dialect
from vtc.reporting.hints import explain_error, possible_call
from vtc.reporting.outcomes import LEFT_ALONE, OUTCOMES, UNDER_WAY, Look
from vtc.reporting.picture import ExchangeSample, charts, rows
from vtc.reporting.plain import as_report
from vtc.reporting.report import Measures, Parties, Report, broken_prefix, count, summed_up
from vtc.reporting.view import Bodies, diff, pane, sections

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
    "as_report",
    "broken_prefix",
    "charts",
    "count",
    "diff",
    "draft_dialect",
    "explain_error",
    "pane",
    "possible_call",
    "read_cases",
    "rows",
    "sections",
    "summed_up",
    "write_case",
]
