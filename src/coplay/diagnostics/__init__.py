"""Numbers that explain a run while it runs."""
