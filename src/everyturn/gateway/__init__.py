"""The HTTP surface: one turn from a client's request to the last byte of its answer."""
