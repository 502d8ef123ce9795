"""``python -m imgbuild``: the same as the command ``imgbuild``."""

from imgbuild.cli import main

if __name__ == "__main__":
    main()
