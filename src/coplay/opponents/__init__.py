"""What players think of each other: goals told in hindsight, beliefs, models of what each would do."""
