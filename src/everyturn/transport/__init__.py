"""Ways to reach a provider. See `base` for what each of them promises."""
