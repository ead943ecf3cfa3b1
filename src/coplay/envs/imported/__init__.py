"""Games of others behind our own contract. Their packages are imported when such a game is made."""
