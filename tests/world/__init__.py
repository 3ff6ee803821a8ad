"""A server, its sites and the network between them in one seeded world."""
