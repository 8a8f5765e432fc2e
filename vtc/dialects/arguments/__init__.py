"""Read and write the arguments of a call, one file a form."""
