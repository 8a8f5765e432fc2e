"""Policies: canonical events in, canonical events out, whichever way the calls among them were written."""
