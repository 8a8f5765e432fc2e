"""The README keeps what it says."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from vtc.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_tables_are_what_the_command_prints() -> None:
    """Renew them: replace what stands between the two comments by the output of the command in the first."""
    command = "vtc profiles --markdown"
    shown = README.partition(f"<!-- {command} -->\n")[2].partition("<!-- end -->")[0]
    printed = CliRunner().invoke(main, command.split()[1:]).output
    assert shown == printed, f"{command} prints other tables: put its output into the README"


def test_the_profile_that_it_shows_is_valid(tmp_path: Path) -> None:
    text = README.partition("```yaml\n# my-profiles/shout.yaml\n")[2].partition("```")[0]
    (tmp_path / "shout.yaml").write_text(text, "utf-8")
    done = CliRunner().invoke(main, ["check", str(tmp_path)])
    assert done.exit_code == 0, done.output
