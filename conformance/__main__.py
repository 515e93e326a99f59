"""`python -m conformance`: find the subcommand, import only that, and turn what goes wrong into an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from conformance import __version__
from conformance.cli import INTERNAL_ERROR, INTERRUPTED, OK, USAGE, say
from conformance.names import UsageError, printable, unknown
from conformance.results.silence import fall_silent

COMMANDS = {
    "run": "measure a backend and write results.json and junit.xml (the default)",
    "list": "print the plan: every case, without running any",
    "explain": "print everything about one case",
    "validate": "check profiles",
    "report": "tell a finished run again, and write its junit.xml again",
    "attention": "measure one attention kernel, a Python function, without engine and model",
    "selftest": "inject faults and correct variations, and show what is found and what is accused",
    "doctor": "look in seconds for what would spoil a run of hours",
    "calibrate": "measure correct variations on a device, and propose the limits that follow",
    "models": "list, fetch, verify, export and import the models of the catalogue",
}

EXAMPLES = """examples:
  python -m conformance --backend cpu
  python -m conformance list --backend xpu --suite rerank
  python -m conformance explain --backend cpu 'rerank.*sdpa/bfloat16*'
  python -m conformance validate --profile my/profile.toml
  python -m conformance report out --baseline last/results.json
  python -m conformance doctor --backend xpu
  python -m conformance selftest --backend cpu --fault mask.causal-plus-one
  python -m conformance models fetch Qwen3-Embedding-0.6B

exit codes: 0 all that was selected passed or is rightly skipped; 1 failures; 2 interrupted; 3 internal error;
4 usage; 5 nothing executed; 6 incomplete (something selected could not run)
"""


_STREAM_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code; never raises but for a defect under CONFORMANCE_DEBUG=1."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no crash
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except UsageError as error:
        for fault in error.faults:
            say(printable(fault))
        return USAGE
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        fall_silent(sys.stdout)  # the reader (`| head`) has seen enough
        return OK
    except SystemExit as end:  # argparse's, after --help
        return _unheard(None) or int(end.code or OK)
    except Exception as error:
        if isinstance(error, OSError) and (code := _unheard(error)):
            return code
        if os.environ.get("CONFORMANCE_DEBUG") == "1":
            raise
        text = printable(f"{type(error).__name__}: {error}").replace("\n", " ")
        say(f"internal error: {text} (CONFORMANCE_DEBUG=1 shows the trace)")
        return INTERNAL_ERROR


def _unheard(error: OSError | None) -> int:
    """Say that standard output cannot take what was printed, and return the code for that; 0 where it can.

    With Python's own buffer a write fails when that is flushed; without it, `error` is all that there is to see.
    """
    lost = error if error is not None and error.filename is None and error.errno in _STREAM_FAULTS else None
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as late:
        lost = late
    if lost is None:
        return OK
    if sys.stdout is not None:
        fall_silent(sys.stdout)
    say(f"standard output cannot be written: {lost.strerror or lost}")
    return INTERNAL_ERROR


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        _help(sys.stdout if arguments else sys.stderr)
        return OK if arguments else USAGE
    if arguments[0] == "--version":
        print(f"conformance {__version__}")
        return OK
    name = "run" if arguments[0].startswith("-") else arguments.pop(0)
    if name not in COMMANDS:
        raise UsageError(unknown("subcommand", name, COMMANDS))
    from conformance.cli.parser import Parser

    command = importlib.import_module(f"conformance.cli.{name}")
    parser = Parser(prog=f"python -m conformance {name}", description=f"{COMMANDS[name]}.")
    command.add_arguments(parser)
    return int(command.main(parser.parse_args(arguments)))


def _help(stream: object) -> None:
    lines = [f"usage: python -m conformance [{'|'.join(COMMANDS)}] --backend NAME [options]", ""]
    lines += ["Does an inference stack compute the right numbers on its device?", "", "subcommands:"]
    lines += [f"  {name:10}{meaning}" for name, meaning in COMMANDS.items()]
    lines += ["  (each has its own --help)", "", EXAMPLES]
    print("\n".join(lines), file=stream, end="")  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main())
