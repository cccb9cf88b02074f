"""Wire formats: how one kind of API writes a request and what its frames mean."""
