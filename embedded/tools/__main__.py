"""Builds pinned tools.

python -m embedded.tools NAME      # prints the path of a tool, building it first if need be
python -m embedded.tools --all     # all that tests need
"""

import signal
import sys

from . import TOOLS, ToolError, provide


def main(arguments: list[str]) -> int:
    names = list(TOOLS) if arguments == ["--all"] else arguments
    if len(arguments) != 1 or names[0].startswith("-"):
        print(f"usage: python -m embedded.tools {{--all|{'|'.join(sorted(TOOLS))}}}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a build ends with the command that began it
    try:
        for name in names:
            print(provide(name))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on where this one stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
