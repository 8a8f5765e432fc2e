"""A request on its way up: what the model is shown, in its server's API, ready for the server."""
