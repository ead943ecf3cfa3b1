"""Who can sit in a seat: scripted players, frozen runs, and line-ups of them."""
