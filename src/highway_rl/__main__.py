"""`python -m highway_rl` is `highway-rl`."""

from highway_rl.cli.app import main

if __name__ == "__main__":
    main()
