"""The command line: parses, builds, calls."""
