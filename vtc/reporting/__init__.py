"""Report VTC's actions to people.

Report, summarize_report            the record of an exchange as plain data, and its summary in one line
OUTCOMES                            words, signs and tones of outcomes
Bodies, render_pane, render_diff    a request or a reply as a page of text, as received and as sent
ExchangeSample, draw_charts         charts of many exchanges over time
explain_error, find_possible_call   hints about a server's error, and about a call that was not read
Case, parse_cases, serialize_case   a recorded reply with the calls that it should be read as
"""

from vtc.reporting.case import Case, parse_cases, serialize_case
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
    "ExchangeSample",
    "Look",
    "Measures",
    "Parties",
    "Report",
    "count_entries",
    "describe_broken_prefix",
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
