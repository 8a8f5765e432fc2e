"""How the arguments of a call are written, one file a form, both directions."""
