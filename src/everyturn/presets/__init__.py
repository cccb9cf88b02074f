"""What is known of each provider, as data: one TOML file each, every value with its source."""
