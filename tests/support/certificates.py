"""A throwaway certificate authority for tests, made anew in each run and known to nobody else."""

from __future__ import annotations

import ssl
from functools import cache

import trustme


@cache
def authority() -> trustme.CA:
    """The authority of this test run."""
    return trustme.CA()


def server_context(*names: str) -> ssl.SSLContext:
    """For a server with a certificate of the authority for `names` (hosts or addresses)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*names).configure_cert(context)
    return context


def self_signed_context(*names: str) -> ssl.SSLContext:
    """For a server whose certificate comes from an authority that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(*names).configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    """For a client that trusts the authority and verifies as always."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context
