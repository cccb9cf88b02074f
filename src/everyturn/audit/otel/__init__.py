"""The record in the words of OpenTelemetry's GenAI conventions and of OpenInference, both ways."""
