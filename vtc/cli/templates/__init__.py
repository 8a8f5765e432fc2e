"""Chat templates: find one in a file, render it in a separate process, and check a dialect with it."""

from vtc.cli.templates.checking import CASES, TOOLS, CaseResult, check_file, check_replies, write_cases
from vtc.cli.templates.files import MAX_FILE_BYTES, TemplateFile, load_templates
from vtc.cli.templates.rendering import RenderError, render_template

__all__ = [
    "CASES",
    "MAX_FILE_BYTES",
    "TOOLS",
    "CaseResult",
    "RenderError",
    "TemplateFile",
    "check_file",
    "check_replies",
    "load_templates",
    "render_template",
    "write_cases",
]
