"""Parse and render the arguments of a call, one file per format."""
