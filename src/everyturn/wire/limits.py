"""Bounds on what one provider answer may make the gateway hold. Passing one is a typed failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All in bytes. Each bound is answered with `upstream_too_large`, never with a cut."""

    frame_bytes_max: int = 32 * 1024 * 1024
    """One event of a stream."""
    body_bytes_max: int = 64 * 1024 * 1024
    """One whole body."""
    stream_bytes_max: int = 512 * 1024 * 1024
    """All bytes of one stream."""
    text_bytes_max: int = 16 * 1024 * 1024
    """Content of one choice in UTF-8; the same again for its reasoning and its tool arguments."""
    carried_bytes_max: int = 64 * 1024 * 1024
    """All else of one answer together that has to be kept: reasoning details, annotations, audio,
    refusals, logprobs, unknown keys. About their size in JSON."""
