"""Chat templates: find one in a file, render it in a separate process, and check a dialect with it."""

from vtc.cli.templates.checking import CASES, TOOLS, CaseResult, check_file, check_replies, write_cases
from vtc.cli.templates.files import load_templates
from vtc.cli.templates.rendering import RenderError, render_template

__all__ = [
    "CASES",
    "TOOLS",
    "CaseResult",
    "RenderError",
    "check_file",
    "check_replies",
    "load_templates",
    "render_template",
    "write_cases",
]
