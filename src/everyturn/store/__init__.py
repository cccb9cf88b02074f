"""Where records rest. One seam (`base`), and the writer that commits in groups."""
