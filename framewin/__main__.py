"""`python -m framewin`."""

from framewin.cli import main

if __name__ == "__main__":
    main()
