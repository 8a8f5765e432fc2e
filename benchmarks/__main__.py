"""All benchmarks."""

from benchmarks import engine

engine.main()
