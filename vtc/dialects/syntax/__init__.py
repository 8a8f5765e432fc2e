"""Compiles the YAML of dialects into patterns, and into scans that find their tokens."""
