"""The `edgewise` command. Only argparse is imported here: PyTorch loads inside the commands that compute."""

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from edgewise import __version__
from edgewise.apps.arguments import MOST, Parser, add_places, amount, folder, whole
from edgewise.apps.command.store import STORE, add_options, store
from edgewise.apps.ending import complained, interrupted, succeeded, unread
from edgewise.apps.help import (
    CHECK,
    DOCTOR,
    EXAMPLES,
    EXPLAIN,
    EXPLORE,
    EXPORT,
    METHODS,
    PLAN,
    REPORT,
    SERVE,
    TRAIN,
)
from edgewise.apps.tuning.options import TUNE, limits
from edgewise.apps.tuning.options import add_options as add_tuning_options
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.memory import was_short

Summary = dict[str, Any]  # what --json prints


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and its commands' parsers by name."""
    parser = Parser(
        prog="edgewise",
        description="One attention, any graph: train and run transformers and graph networks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"edgewise {__version__}")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on standard output")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    made: dict[str, Parser] = {}

    def add(name: str, help: str, details: str = "") -> Parser:
        made[name] = commands.add_parser(
            name,
            help=help,
            description=details or help[0].upper() + help[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=name != "train",
        )
        made[name].add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="end with one line of JSON on standard output",
        )
        return made[name]

    def number(command: Parser, flag: str, letter: str, least: int, most: int, default: int | None, help: str) -> None:
        shown = "" if default is None else f" (default: {default})"
        command.add_argument(flag, type=whole(least, most), default=default, metavar=letter, help=help + shown)

    demo = add("demo", "train one attention on text, images and a social network")
    demo.add_argument(
        "--run",
        type=folder,
        metavar="FOLDER",
        help="where to put the runs and the report (default: runs/demo, or where that is taken runs/demo-2, ...)",
    )

    listing = add("list", "show the systems and the recipes, or one table in full")
    listing.add_argument("what", nargs="?", metavar="TABLE", choices=TABLES, help=f"one of {', '.join(TABLES)}")

    train = add("train", "train a recipe; write its run folder and report", TRAIN)
    train.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="a name of `edgewise list recipes`, or the path of a YAML file"
    )
    number(train, "--seeds", "N", 1, 1000, 1, "repeat with N seeds: mean ± standard deviation")
    number(train, "--folds", "N", 2, 1000, None, "repeat with task.fold = 0 to N - 1, each with its own seed")
    train.add_argument(
        "--run",
        type=folder,
        metavar="FOLDER",
        help="the run folder, of several runs the one that holds theirs, seed-N (default: runs/RECIPE-SEED, or where "
        "that is taken runs/RECIPE-SEED-2, ...)",
    )
    train.add_argument("--print-config", action="store_true", help="print the recipe as it would be trained, and stop")
    train.add_argument("-h", "--help", action="store_true", help="show this help; with a RECIPE, all of its options")

    add_tuning_options(add("tune", "search a recipe's options by the validation data", TUNE))

    resume = add("resume", "go on with an interrupted run, bit for bit")
    evaluate = add("evaluate", "measure a run on its validation and test data")
    predict = add("predict", "predict for one input, or for all of a file or a folder")
    generate = add("generate", "let a model continue a text, or write new graphs or images")
    for command in (resume, evaluate, predict, generate):
        command.add_argument("run", metavar="RUN", help="a run folder")
        command.add_argument("--accept", action="store_true", help="take an altered configuration or history as it is")
    predict.add_argument(
        "input", metavar="INPUT", help="a number, a path or a text, as the task reads it, or as in test:17"
    )
    predict.add_argument(
        "--out", metavar="TABLE", help="write a .csv or .parquet for all inputs of a file, or all nodes of a folder"
    )
    predict.add_argument("--column", metavar="NAME", help="the column of INPUT (default: input, or the only one)")
    explanation = add("explain", "show why a run predicts what it predicts, on one page", EXPLAIN)
    explanation.add_argument("run", metavar="RUN", help="a run folder")
    explanation.add_argument("input", metavar="INPUT", help="an input, as `edgewise predict` reads it")
    explanation.add_argument("--method", default="integrated-gradients", metavar="METHOD", help=METHODS)
    number(explanation, "--layer", "N", 0, 10_000, None, "of the method attention: a layer, from 0 (default: the last)")
    number(explanation, "--head", "N", 0, 10_000, None, "of the method attention: a head, from 0 (default: their mean)")
    explanation.add_argument(
        "--target",
        help="a class by its name, or an output's number (default: the likeliest); of several targets one by its name "
        "(age), or a class of it (party:left)",
    )
    explanation.add_argument("--out", metavar="PAGE", help="where to write it (default: in the run's explanations)")
    explanation.add_argument("--accept", action="store_true", help="take an altered configuration or history as it is")
    generate.add_argument("--prompt", default="\n", help="the text to continue (default: a new line)")
    number(generate, "--steps", "N", 1, 1_000_000, 200, "tokens to add: characters, bytes or byte pairs")
    generate.add_argument("--temperature", type=amount, metavar="T", help="0 is greedy (default: 0.8; of graphs 1)")
    number(generate, "--top-k", "K", 1, MOST, None, "draw from the K most likely tokens only")
    generate.add_argument(
        "--no-cache", action="store_true", help="recompute the past at every step instead of keeping keys and values"
    )
    number(generate, "--count", "N", 1, 10_000, 10, "new graphs or images, of a model of these")
    number(generate, "--seed", "N", 0, MOST, 0, "of the random draws")

    export = add("export", "write a model as a file that runs without Edgewise", EXPORT)
    export.add_argument("run", metavar="RUN", help="a run folder")
    export.add_argument("--to", default="onnx", choices=("onnx", "pt2", "aoti"), help="the format (default: onnx)")
    export.add_argument("--out", metavar="FILE", help="the file to write (default: model.onnx, ... in RUN)")
    export.add_argument(
        "--cache", action="store_true", help="a language model's decoding step, which reads keys and values of the past"
    )
    export.add_argument("--native", action="store_true", help="use the C++ kernels on edges (pt2, aoti)")
    export.add_argument(
        "--radius",
        type=amount,
        metavar="R",
        help="the file finds the edges itself, of positions within R, and reads none",
    )
    export.add_argument("--accept", action="store_true", help="take an altered configuration or history as it is")

    serve = add("serve", "predict for whoever sends a request, over HTTP", SERVE)
    serve.add_argument("run", metavar="RUN", help="a run folder")
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="(default: 127.0.0.1, this machine only)")
    number(serve, "--port", "P", 0, 65535, 8000, "0 takes a free one")
    number(serve, "--timeout", "SECONDS", 1, 3600, 30, "for a request to come, and for its predictions")
    number(serve, "--megabytes", "M", 1, 1024, 8, "of a request at most")
    serve.add_argument("--accept", action="store_true", help="take an altered configuration or history as it is")

    explore = add("explore", "write a page with a model's attention on graphs that you draw", EXPLORE)
    explore.add_argument(
        "run", nargs="?", metavar="RUN", help="a run folder (default: the model that comes with Edgewise)"
    )
    explore.add_argument(
        "--out", metavar="PAGE", help="the file to write (default: RUN/explorer.html, or explorer.html)"
    )
    explore.add_argument("--node", metavar="NODE", help="show what lies around this node: its name, or its number")
    explore.add_argument("--accept", action="store_true", help="take an altered configuration or history as it is")

    for command in (resume, evaluate, predict, generate, explanation, export, serve, explore):
        add_places(command)

    report = add("report", "put runs side by side on one page", REPORT)
    report.add_argument("what", metavar="compare", choices=("compare",), help="curves, results, options that differ")
    report.add_argument("runs", nargs="+", metavar="RUN", help="two run folders or more")
    report.add_argument("--out", metavar="PAGE", help="the file to write (default: comparison.html)")

    plan = add("plan", "show which backend would run on a graph, and why", PLAN)
    plan.add_argument("pattern", nargs="?", metavar="PATTERN", help="a name of `edgewise list patterns`")
    plan.add_argument(
        "options", nargs="*", metavar="OPTION=VALUE", help="the pattern's own options, such as n=4096 radius=64"
    )
    plan.add_argument("--score", metavar="SCORE", help="a score of `attend` (default: Dot)")
    plan.add_argument("--layer", metavar="LAYER", help="every call of a layer instead: EGNN, SchNet, TFN, ...")
    number(plan, "--heads", "H", 1, 4096, 4, "attention heads")
    number(plan, "--channels", "C", 1, 65536, 64, "channels per head")
    number(plan, "--batch", "B", 1, MOST, 1, "graphs alike, side by side")
    plan.add_argument(
        "--dtype", default="float32", choices=("float64", "float32", "bfloat16", "float16"), help="(default: float32)"
    )
    plan.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where the graph would be (default: cpu)"
    )
    plan.add_argument(
        "--calibrate", action="store_true", help="first measure the device's speeds (1 to 5 s) and keep them"
    )

    check = add("check", "measure what a model can tell apart, or what explanations find", CHECK)
    what = ("expressiveness", "explanations")
    check.add_argument("what", metavar="WHAT", choices=what, help=" or ".join(what))
    check.add_argument("model", metavar="MODEL", nargs="?", help="of expressiveness: a name of `edgewise list models`")
    check.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="the model's own, such as layer=gin depth=5")
    check.add_argument("--pairs", metavar="FILE", help="of expressiveness: your own pairs, in graph6, two lines a pair")
    number(check, "--train", "STEPS", 0, 100_000, 0, "of expressiveness: train on each pair first")
    number(check, "--relabellings", "N", 1, 10_000, None, "of expressiveness: copies of each graph (default: 100)")
    add_options(add("store", "build, show or check a graph on disk, larger than memory", STORE))
    add("doctor", "show what is installed and what runs here", DOCTOR)
    return parser, made


TABLES = ("systems", "recipes", "layers", "models", "patterns", "backends", "tasks")


def split_sections(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Set aside every `--section.option value` and `--section name`; what is left is for argparse."""
    from edgewise.apps.recipes import SECTIONS

    rest, sections = [], []
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
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
    args.sections = sections
    if args.command is None or (args.command == "train" and args.recipe is None):
        if args.command == "train" and not args.help:
            raise ConfigError("train needs a RECIPE; `edgewise list recipes` names them")
        (commands["train"] if args.command else parser).print_help()
        raise SystemExit(0)
    return args


def run(args: argparse.Namespace) -> Summary:
    """Carry out one command."""
    match args.command:
        case "list":
            from edgewise.apps.command.listing import show

            return show(args.what)
        case "demo":
            from edgewise.apps.command.demo import demo

            return demo(args.run)
        case "train":
            from edgewise.apps.command.runs import train

            if args.folds and args.seeds > 1:
                raise ConfigError("--folds and --seeds exclude one another: each fold has its own seed")
            options = {"folds": args.folds, "print_config": args.print_config, "help": args.help}
            return train(args.recipe, args.sections, args.seeds, args.run, **options)
        case "tune":
            from edgewise.apps.tuning.command import tune

            if args.folds and args.seeds > 1:
                raise ConfigError("--folds and --seeds exclude one another: each fold has its own seed")
            repeats, within = (args.folds or args.seeds, bool(args.folds)), limits(args.trials, args.time)
            return tune(args.recipe, args.sections, args.search, repeats, within, args.run)
        case "resume":
            from edgewise.apps.command.runs import resume

            return resume(args.run, args.accept, dict(args.data))
        case "evaluate":
            from edgewise.apps.command.inference import evaluate

            return evaluate(args.run, args.accept, dict(args.data))
        case "predict":
            from edgewise.apps.command.inference import predict, predict_all

            if args.out is not None:
                return predict_all(args.run, args.input, args.out, args.column, args.accept, dict(args.data))
            if args.column is not None:
                raise ConfigError("--column is of a file of inputs: give --out for the table of predictions")
            return predict(args.run, args.input, args.accept, dict(args.data))
        case "generate":
            from edgewise.apps.command.inference import generate
            from edgewise.tasks.core.abilities import Sampling

            drawn = {name: getattr(args, name) for name in ("prompt", "steps", "count", "temperature", "top_k", "seed")}
            return generate(args.run, Sampling(**drawn, cache=not args.no_cache), args.accept, dict(args.data))
        case "explain":
            from edgewise.apps.command.explanation import explain

            where = {"layer": args.layer, "head": args.head, "target": args.target, "out": args.out}
            return explain(args.run, args.input, args.method, **where, accept=args.accept, folder=dict(args.data))
        case "store":
            return store(args)
        case "doctor":
            from edgewise.apps.command.doctor import doctor

            return doctor()
        case "explore":
            from edgewise.apps.command.explore import explore

            return explore(args.run, args.out, args.node, args.accept, dict(args.data))
        case "export":
            from edgewise.apps.command.inference import export

            how = {"cache": args.cache, "native": args.native, "radius": args.radius, "folder": dict(args.data)}
            return export(args.run, args.to, args.out, args.accept, **how)
        case "serve":
            from edgewise.apps.command.inference import serve

            where = {"host": args.host, "port": args.port, "folder": dict(args.data)}
            return serve(args.run, timeout=args.timeout, megabytes=args.megabytes, accept=args.accept, **where)
        case "report":
            from edgewise.apps.report.compare import compare

            return compare(args.runs, args.out)
        case "check":
            if args.what == "explanations":
                from edgewise.apps.command.planted import check as check_explanations

                if args.model is not None or args.pairs or args.train or args.relabellings:
                    raise ConfigError("check explanations trains models of its own: it takes no MODEL and no option")
                return check_explanations()
            from edgewise.apps.command.expressiveness import check

            if args.model is None:
                raise ConfigError("check expressiveness needs a MODEL; `edgewise list models` names them")
            return check(args.model, args.options, args.pairs, args.train, args.relabellings or 100)
        case _:
            from edgewise.apps.command.planning import plan

            shape = (args.heads, args.channels, args.batch, args.dtype)
            if None not in (args.score, args.layer):
                raise ConfigError("--score and --layer exclude one another: a layer has its own scores")
            return plan(
                args.pattern, args.options, args.score, args.layer, *shape, args.device, calibrate=args.calibrate
            )


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
