"""A reply on its way to the client: the stream, the pipeline of each choice with its stages, and the fate of faults."""
