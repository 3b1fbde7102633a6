"""`python -m hocket`: the same as the command `hocket`."""

from .cli import main

main()
