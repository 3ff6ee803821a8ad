"""How a round is carried out: the readable way, and the fast way."""
