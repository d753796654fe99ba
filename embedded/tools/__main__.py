"""`python -m embedded.tools NAME` prints the path of a tool, building it first if need be."""

import sys

from . import TOOLS, ToolError, provide


def main(names: list[str]) -> int:
    if len(names) != 1 or names[0].startswith("-"):
        print(f"usage: python -m embedded.tools {{{'|'.join(sorted(TOOLS))}}}", file=sys.stderr)
        return 2
    try:
        print(provide(names[0]))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the next run goes on where this one stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
