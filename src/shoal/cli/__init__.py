"""The command line, for example ``shoal train mappo mpe/simple_spread``: flags, commands, messages and exit codes.

Nothing else imports from here but the entry point :func:`main`; commands call the functions that are public in Python.
"""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; see :func:`shoal.cli.command_line.main`."""
    from shoal.cli.command_line import main as run

    return run(argv)
