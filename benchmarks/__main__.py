"""All benchmarks."""

from benchmarks import engine, lenient

engine.main()
lenient.main()
