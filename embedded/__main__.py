"""The commands of `./dev` that run a stack on this machine: see cli.py.

python -m embedded up | status | load | logs | down
"""

import signal

if __name__ == "__main__":
    # Imports take a second, in which Ctrl-C would print a traceback. cli.main has a handler of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main

    main()
