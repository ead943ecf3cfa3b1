"""Run folder in, tables, pictures and pages out."""
