"""Installs pinned tools.

python -m embedded.tools NAME …    # prints the paths of tools, downloading or building them first if need be
python -m embedded.tools --all     # all that tests need
"""

import signal
import sys

from . import TOOLS, ToolError, provide_all


def main(arguments: list[str]) -> int:
    names = list(TOOLS) if arguments == ["--all"] else arguments
    if not names or any(name.startswith("-") for name in names):
        print(f"usage: python -m embedded.tools {{--all|{'|'.join(sorted(TOOLS))}}}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a build ends with the command that began it
    try:
        for path in provide_all(names).values():
            print(path)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on where this one stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
