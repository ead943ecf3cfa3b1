"""Scores and what may be claimed from them."""
