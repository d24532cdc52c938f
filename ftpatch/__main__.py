"""``python -m ftpatch``."""

from ftpatch.cli import main

if __name__ == "__main__":
    main()
