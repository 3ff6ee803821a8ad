"""A server, its sites, their disks and the network between them in one seeded world."""
