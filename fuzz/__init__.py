"""Coverage-guided fuzzing: `make fuzz`, or `python -m fuzz reply --seconds 600` for one target.

`targets.py` states the properties that must hold for any input, and `__main__.py` runs the targets in the fuzzer.
Failing inputs are stored in `tests/cases/fuzz`; the ordinary tests repeat them without the fuzzer.
"""
