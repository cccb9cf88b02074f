"""What is known of each provider, with source and date, and what its calls cost."""
