"""The command line: builds objects from a Config and prints what readers return."""
