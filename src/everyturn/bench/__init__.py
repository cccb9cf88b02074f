"""The benchmark harness: models, prompts and routes against each other on the same items.

A customer of the gateway like any other: it reaches models over HTTP, and each of its rows is a
recorded turn. What it does to disk stands in one run folder that can be resumed.
"""
