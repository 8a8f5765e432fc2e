"""Run the command line as `python -m vtc`, if the `vtc` script is not installed."""

from vtc.cli import main

main(prog_name="vtc")
