"""`loam` and `python -m loam_heap`: the program takes this process's place."""
import os
import sys

from loam_heap import program


def main() -> None:
    path = program()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"loam: {path} could not be started: {error.strerror}; reinstall loam-heap")


if __name__ == "__main__":
    main()
