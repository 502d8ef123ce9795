"""Fakes, servers and fixtures that tests share."""
