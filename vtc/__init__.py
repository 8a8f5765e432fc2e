"""Virtual Tool Calling: tool calls written as text, turned into structured ones and back."""

__version__ = "0.1.0"
