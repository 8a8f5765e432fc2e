"""Test `vtc new-dialect --template`: the dialect that it derives reads calls that it was not derived from."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.templates import made_templates
from tests.cli.templates.made_templates import FORMS, HERMES, PLAIN
from vtc.cli import main


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def derive(source: str, folder: Path) -> tuple[str, Result]:
    """Derive a dialect, check it alone and with the template; return its file and the result of the second check."""
    (template := folder / "chat.jinja").write_text(source)
    derived = run("new-dialect", "--template", template, "--name", "new")
    assert derived.exit_code == 0, derived.output
    (profiles := folder / "profiles").mkdir()
    (profiles / "new.yaml").write_text(derived.stdout, "utf-8")
    checked = run("check", profiles)
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output
    return derived.stdout, run("check", profiles, "--template", template, "--dialect", "new")


@pytest.mark.parametrize("form", FORMS)
def test_a_derived_dialect_reads_all_calls_of_its_template(form: str, tmp_path: Path) -> None:
    file, checked = derive(FORMS[form], tmp_path)
    assert checked.exit_code == 0, f"{file}\n{checked.output}"
    assert checked.output.endswith("13 exact\n")
    assert "# unsure: the template has its own" in file
    assert "# unsure: the template writes one call" not in file


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("ONE_CALL", ["# unsure: the template writes one call in a reply", 'call: "<|call|>{json}"']),
        ("BARE", ['section_anchor: "message"', 'names: "declared"']),
        ("PROMPTED", ['prompted: ">>>"', 'names: "declared"']),
        (
            "THINKING",
            [
                'call: "<call>{name} {args}</call>"',
                'result: "<output>{result}</output>"',
                '# In the profile of the model: reasoning: {"open": "<think>", "close": "</think>", "prefilled": true}',
            ],
        ),
    ],
)
def test_facts_of_a_template_are_derived(name: str, lines: list[str], tmp_path: Path) -> None:
    file, checked = derive(getattr(made_templates, name), tmp_path)
    assert "exact" in checked.output
    assert "different" not in checked.output
    assert not [line for line in lines if line not in file], file


def test_a_template_in_a_known_dialect_is_reported(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja")
    assert "this reply is read already, as hermes" in result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN, "the template writes no call in a form that is known"),
        ("{% for", "the template writes no call in a form that is known"),
        ("{{ 'x' * 1000000000000 }}", "the template writes no call in a form that is known"),
        ("x" * (1 << 19), "it is too long to be inspected"),
    ],
)
def test_a_template_without_calls_is_reported(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(source)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja")
    assert result.exit_code == 1
    assert message in result.output


def test_a_template_takes_the_place_of_a_reply(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja", tmp_path / "chat.jinja")
    assert result.exit_code == 2
    assert "--template needs no reply and no tools" in result.output
