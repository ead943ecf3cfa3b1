"""The `coplay` command: parses, builds, calls.

Exit codes: 0 done, 2 bad input (nothing lost, no new folder left), 1 any other failure, 130 and 143
stopped by Ctrl-C and SIGTERM with the state saved.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence

from coplay import __version__
from coplay.cli import verbs
from coplay.errors import BadInput, UnknownSetting, nearest
from coplay.training.devices import keep_compiled_programs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        return _run(arguments)
    except BadInput as problem:
        print(f"coplay: {problem}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        code = 1
    except KeyboardInterrupt:
        print("coplay: stopped at once; what had been saved before is kept", file=sys.stderr)
        code = 130
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"coplay: {type(error).__name__}: {error} (--debug shows where)", file=sys.stderr)
        code = 1
    return code


def _run(arguments: list[str]) -> int:
    parser = build_parser()
    parsed, rest = parser.parse_known_args(arguments)
    if parsed.verb is None:
        parser.print_help()
        return 0
    keep_compiled_programs()
    try:
        return parsed.call(parsed, rest)
    except UnknownSetting as problem:
        raise UnknownSetting(problem.given, problem.known | parsed.options) from problem


class Parser(argparse.ArgumentParser):
    """Errors as one sentence with exit code 2, and the nearest verb for a mistyped one."""

    def error(self, message: str):
        raise BadInput(f"{message} (see `{self.prog} --help`)")

    @property
    def long_options(self) -> set[str]:
        names = (name for action in self._actions for name in action.option_strings)
        return {name.removeprefix("--") for name in names if name.startswith("--")}

    def _check_value(self, action, value) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        if action.option_strings:
            raise BadInput(f"{action.option_strings[0]} {value} is none of {', '.join(choices)}")
        raise BadInput(f"unknown verb {value!r}; {nearest(str(value), choices)}")


def build_parser() -> Parser:
    parser = Parser(
        prog="coplay",
        description="Learning with and against other learners: train, score, replay and compare.",
        epilog="`coplay VERB --help` tells more; every verb takes --json, and --debug shows a stack trace.",
    )
    parser.add_argument("--version", action="version", version=f"coplay {__version__}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    for verb in verbs.VERBS:
        sub = subparsers.add_parser(
            verb.name,
            help=verb.summary,
            description=verb.summary,
            epilog=verb.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        sub.add_argument("--json", action="store_true", help="machine-readable result on standard output")
        verb.arguments(sub)
        sub.set_defaults(call=verb.call, options=sub.long_options)
    return parser


if __name__ == "__main__":
    sys.exit(main())
