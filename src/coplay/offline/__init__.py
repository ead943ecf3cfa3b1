"""Offline: play of known players written to files, and parts of a learner trained from them."""
