"""Coverage-guided fuzzing: `make fuzz`, or `python -m fuzz reply --seconds 600` for one target.

`targets.py` says what must hold for any input, `__main__.py` hands the targets to the fuzzer. What it found is kept in
`tests/cases/fuzz` and read again by the ordinary tests, which need no fuzzer.
"""
