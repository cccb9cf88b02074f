"""`python -m everyturn`."""

from everyturn.cli.main import main

main()
