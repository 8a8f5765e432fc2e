"""`vtc probe`: test how a model server handles tools, and propose profiles for it."""
