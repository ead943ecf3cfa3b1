"""Tree search for a batch of decisions: knows no game and no network, only the functions it is given."""
