"""`python -m vtc`: the command line where no script is installed."""

from vtc.cli import main

main(prog_name="vtc")
