"""Fault injection, for tests and `deploy local --chaos`. No shipped app imports it."""
