"""Text -> events: the reader, its states, and the repairs of malformed calls."""
