"""Derive dialects for models without a profile, from the chat templates that their servers state.

A template is untrusted. `vtc new-dialect` derives the dialect in a process of its own, beside the event loop, and
renders the template in a third one. Its answer is converted like a profile of the user. A derived dialect is read like
the general ones only if nobody writes its opener by accident.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

import vtc
from vtc.dialects import Description
from vtc.events import ListedModel
from vtc.profiles.matching import Facts, plain_model
from vtc.profiles.planner import Planner
from vtc.scrub import drop_credentials, escape_invisible

DERIVING_SECONDS = 20
"""Limit of the elapsed time; two to three are usual."""
MAX_DERIVED_MODELS = 4
"""Maximum number of models of a server for which dialects are derived."""
HTML_ELEMENTS = """
    a abbr address area article aside audio b base bdi bdo blockquote body br button canvas caption cite code
    col colgroup data datalist dd del details dfn dialog div dl dt em embed fieldset figcaption figure footer
    form h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label legend li link main map
    mark math menu meta meter nav noscript object ol optgroup option output p picture pre progress q rp rt ruby
    s samp script search section select slot small source span strong style sub summary sup svg table tbody td
    template textarea tfoot th thead time title tr track u ul var video wbr
"""
"""The elements of HTML (WHATWG HTML, index of elements), which Markdown contains, too."""
SAFE_OPENER = re.compile(r"<[|｜]|\[[A-Z_]+\]|</?(?P<tag>[A-Za-z][\w:.-]*)")
"""Matches an opener that is a special token or a tag; used with match."""


@dataclass(frozen=True, slots=True)
class DerivedDialect:
    """The result of deriving a dialect for a model."""

    model: str
    line: str
    """The result for the user."""
    dialect: Description | None = None
    """The dialect; None if there is none, or if it must not be read."""


class DerivationError(Exception):
    """Raised if no dialect can be derived, with the reason."""


def derive_dialects(
    described: Iterable[ListedModel], planner: Planner, real_names: Mapping[str, tuple[str, ...]]
) -> list[DerivedDialect]:
    """Derive dialects for the models that have a template, but no profile by any of their names."""
    unknown = [
        model
        for model in described
        if model.template
        and not any(
            planner.has_model_profile(Facts(model=name))
            for name in (model.name, *real_names.get(plain_model(model.name), ()))
        )
    ]
    return [derive_dialect(model) for model in unknown[:MAX_DERIVED_MODELS]]


def derive_dialect(model: ListedModel) -> DerivedDialect:
    """Derive the dialect of a model from its template, unless the general dialects read all its calls."""
    name = f"derived-{re.sub(r'[^a-z0-9.]+', '-', model.name.casefold())[:60].strip('-.') or 'model'}"
    about = f"{escape_invisible(model.name)[:80]} has no profile"
    try:
        output, error_text = _run_command(model.template, name)
        if error_text:
            raise DerivationError(error_text)
        answer = json.loads(output)
        dialect = msgspec.convert(answer["dialect"], Description)
        dialect.check()
    except (DerivationError, ValueError) as error:
        return DerivedDialect(model.name, f"{about}; no dialect was derived from its chat template: {error}")
    if answer["read_already"] >= answer["exact"]:
        return DerivedDialect(model.name, f"{about}; the calls of its chat template are in a known dialect")
    counts = f"{answer['exact']} of {answer['samples']} of its replies exactly"
    if (safe := select_safe(dialect)) is None:
        why = "its opener is neither a special token nor a tag of its own"
        line = f"{about}; the dialect of its chat template is not read, because {why}"
        return DerivedDialect(model.name, f"{line} (`vtc new-dialect --from URL` prints it)")
    return DerivedDialect(model.name, f"{about}; {name}, derived from its chat template, reads {counts}", safe)


def select_safe(dialect: Description) -> Description | None:
    """Select the part of a dialect that begins with special tokens, or tags that HTML does not have; None for none."""
    rescued = dialect.rescued
    openers = (rescued.sections if rescued.section_required else rescued.calls) if rescued else ()
    matches = [SAFE_OPENER.match(opener.lstrip()) for opener in openers]
    elements = HTML_ELEMENTS.split()
    is_safe = matches and all(found and (found["tag"] or "").lower() not in elements for found in matches)
    return rescued if is_safe else None


@lru_cache(maxsize=32)
def _run_command(template: str, name: str) -> tuple[bytes, str]:
    """Run `vtc new-dialect` on a template; return its output, and its error. Raises `DerivationError`.

    The cache also keeps errors, because a server may be probed again every minute.
    """
    command = [sys.executable, "-P", "-m", "vtc", "new-dialect", "--template", "-", "--name", name, "--json"]
    # mitmproxy may have found VTC on a path of its own.
    paths = filter(None, [str(Path(vtc.__file__).parents[1]), os.environ.get("PYTHONPATH")])
    environment = {**drop_credentials(os.environ), "PYTHONPATH": os.pathsep.join(paths)}
    try:
        done = subprocess.run(
            command,
            input=template.encode("utf-8", "replace"),
            capture_output=True,
            env=environment,
            timeout=DERIVING_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise DerivationError("it takes too long") from None
    except OSError as error:
        raise DerivationError(f"the process did not start ({error.strerror})") from None
    error_text = done.stderr.decode("utf-8", "replace").strip().removeprefix("Error: -: ")[-300:] or "failed"
    return done.stdout, error_text if done.returncode else ""
