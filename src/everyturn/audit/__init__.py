"""What is kept, as pure values: records, redaction, and one turn's events turned into rows."""
