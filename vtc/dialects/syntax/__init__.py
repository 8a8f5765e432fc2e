"""The dialects' YAML, compiled: patterns, and the expressions that find their tokens."""
