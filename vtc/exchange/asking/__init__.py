"""A request on its way to the server: the prompt for the model, the server's API, and retries after rejections."""
