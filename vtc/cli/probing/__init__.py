"""`vtc probe`: what a model server does with tools, found out by asking it."""
