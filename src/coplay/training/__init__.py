"""One loop for everything: play, learn, record, resume."""
