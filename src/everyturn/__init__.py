"""everyturn keeps every turn of an LLM application whole: a gateway, a record, a quality loop."""

__version__ = "0.1.0"
