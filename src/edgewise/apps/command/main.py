"""The `edgewise` command. Only argparse is imported here: PyTorch loads inside the commands that compute."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from edgewise import __version__
from edgewise.apps.arguments import Parser
from edgewise.apps.command.options import COMMANDS, EXAMPLES
from edgewise.apps.console import complained, interrupted, succeeded, unread
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.memory import was_short

Summary = dict[str, Any]  # what --json prints


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and its commands' parsers by name."""
    shape: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    about = "One attention, any graph: train and run transformers and graph networks."
    parser = Parser(prog="edgewise", description=about, epilog=EXAMPLES, **shape)
    parser.add_argument("--version", action="version", version=f"edgewise {__version__}")
    ending: dict[str, Any] = {"action": "store_true", "help": "end with one line of JSON on standard output"}
    parser.add_argument("--json", **ending)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    made: dict[str, Parser] = {}
    for name, command in COMMANDS.items():
        text = command.details or command.help[0].upper() + command.help[1:] + "."
        own: dict[str, Any] = {"help": command.help, "description": text, "add_help": name != "train"}
        made[name] = commands.add_parser(name, **own, **shape)
        made[name].add_argument("--json", default=argparse.SUPPRESS, **ending)
        command.add(made[name])
    return parser, made


SHORT = {"--metric": "--evaluation.metric"}  # options of a recipe that have a name of their own


def split_sections(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Set aside every `--section.option value` and `--section name`; what is left is for argparse."""
    from edgewise.apps.recipes import SECTIONS

    rest, sections = list[str](), list[tuple[str, str]]()
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        flag = SHORT.get(flag, flag)
        if not re.fullmatch(rf"--([^\s=]*\.[^\s=]*|{'|'.join(SECTIONS)})", flag):
            rest.append(word)
            continue
        if not equals:
            value = next(words, "--")
            if value.startswith("--"):
                raise ConfigError(f"{flag} needs a value; write {flag}=VALUE for one that begins with --")
        sections.append((flag[2:], value))
    return rest, sections


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command and its options; `sections` holds the options of a recipe as (name, text)."""
    parser, commands = build_parser()
    training = next((word for word in arguments if not word.startswith("-")), None) in ("train", "tune")
    rest, sections = split_sections(arguments) if training else (list(arguments), [])
    args, extra = parser.parse_known_args(rest)
    if extra:
        of_recipe: list[str] = []
        if training and args.recipe and extra[0].startswith("--"):
            from edgewise.apps.options import paths

            of_recipe = paths(args.recipe, sections)
        (commands[args.command] if args.command else parser).refuse(extra[0], of_recipe)
    if training:
        args.sections = sections
    if args.command is None or (args.command == "train" and args.recipe is None):
        if args.command == "train" and not args.help:
            raise ConfigError("train needs a RECIPE; `edgewise list recipes` names them")
        (commands["train"] if args.command else parser).print_help()
        raise SystemExit(0)
    return args


def run(args: argparse.Namespace) -> Summary:
    """Carry out one command: its function gets the options by their names."""
    module, _, name = COMMANDS[args.command].function.partition(":")
    function = getattr(import_module(f"edgewise.apps.{module}"), name)
    options = {option: value for option, value in vars(args).items() if option not in ("command", "json")}
    if "data" in options:
        options["data"] = dict(args.data)
    summary: Summary = function(**options)
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0; 2, with a line on standard error for each thing to put right; 130 interrupted; 141 unread."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a file's name or a prediction may hold what it cannot encode
            stream.reconfigure(errors="backslashreplace")
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        summary = run(args)
        if args.json and os.environ.get("RANK", "0") == "0":  # once, however many processes train
            print(json.dumps(summary, ensure_ascii=False))
        sys.stdout.flush()
    except EdgewiseError as error:
        return complained(*map(str, error.args))
    except BrokenPipeError as stop:
        return unread(*(() if stop.errno else map(str, stop.args)))
    except OSError as error:
        return complained(f"{error.strerror or error}" + (f": {error.filename!r}" if error.filename else ""))
    except (MemoryError, OverflowError, RuntimeError) as error:
        if not was_short(error):
            raise
        return complained(f"this machine has too little memory for it: {error}")
    except KeyboardInterrupt as stop:
        return interrupted(*map(str, stop.args))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return succeeded()
