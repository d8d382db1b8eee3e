"""`python -m perfkit`: the same as the `perfkit` command."""

from perfkit.cli import main

if __name__ == "__main__":
    main()
