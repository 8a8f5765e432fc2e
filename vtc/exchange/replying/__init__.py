"""A reply on its way to the client: its stream, and the stages of each choice between the reader and the encoder."""
