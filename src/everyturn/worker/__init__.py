"""A worker: stands beside a model server, dials out to a gateway, runs its calls on loopback."""
