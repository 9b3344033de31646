"""`python -m occupancy_cli` is `occupancy`."""

from occupancy_cli.cli.app import main

if __name__ == "__main__":
    main()
