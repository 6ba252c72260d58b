"""``python -m nscaching`` is the command ``nscaching``."""

from nscaching.cli.start import main

if __name__ == "__main__":
    main()
