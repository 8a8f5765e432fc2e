"""A real mitmdump between a model server and a client, each in a process of its own."""
