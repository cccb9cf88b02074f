"""Timed things, run by hand: `make bench` and its parts. Never part of the test suite."""
