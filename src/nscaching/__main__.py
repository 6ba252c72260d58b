"""``python -m nscaching`` is the command ``nscaching``."""

from nscaching.cli.main import main

if __name__ == "__main__":
    main()
