"""What each command takes, and which function carries it out. Only argparse is imported here.

A function gets the options by their names, imports what it needs and returns what --json prints.
"""

from collections.abc import Callable
from typing import NamedTuple

from edgewise.apps.arguments import MOST, Parser, add_places, amount, duration, folder, whole

EXAMPLES = """
examples:
  edgewise demo                                    one attention layer on text, images and a social network
  edgewise list                                    the systems that run here, and the recipes
  edgewise train cora-gcn --seeds 10               ten runs, their mean and standard deviation
  edgewise train cora-gat --model.layer.heads 4    change any option of a recipe
  edgewise train cora-gat --help                   ... and see them all
  edgewise tune texas-sage --folds 10 --time 30m   search its options by the validation data
  edgewise resume runs/cora-gat-0                  go on after an interruption, bit for bit
  edgewise generate runs/shakespeare-gpt-cpu-0 --prompt "ROMEO:"
  edgewise serve runs/cora-gat-0                   predictions over HTTP, for this machine
  edgewise plan window n=4096 radius=64 --heads 8  which backend would run, and why
  edgewise explore                                 a page: one attention on graphs that you draw
  edgewise report compare runs/cora-gcn-0 runs/cora-gat-0
  edgewise doctor                                  what is installed and what runs here, for a report
"""


class Command(NamedTuple):
    """A command: its line of help, its options, "module:function" below edgewise.apps, and what its help says more."""

    help: str
    add: Callable[[Parser], None]
    function: str
    details: str = ""


def number(command: Parser, flag: str, letter: str, least: int, most: int, default: int | None, help: str) -> None:
    """A whole number within bounds."""
    shown = "" if default is None else f" (default: {default})"
    command.add_argument(flag, type=whole(least, most), default=default, metavar=letter, help=help + shown)


def flag(command: Parser, name: str, help: str) -> None:
    """An option without a value."""
    command.add_argument(name, action="store_true", help=help)


def of_run(command: Parser) -> None:
    """What commands on a run take."""
    command.add_argument("run", metavar="RUN", help="a run folder")
    accepting(command)


def accepting(command: Parser) -> None:
    flag(command, "--accept", "take an altered configuration or history as it is")
    add_places(command)


def demo(command: Parser) -> None:
    command.add_argument(
        "--run",
        type=folder,
        metavar="FOLDER",
        help="where to put the runs and the report (default: runs/demo, or where that is taken runs/demo-2, ...)",
    )


def evaluate(command: Parser) -> None:
    of_run(command)
    command.add_argument(
        "--data", dest="on", metavar="PLACE", help="measure on all that has a label in this file or folder instead"
    )


TABLES = ("systems", "recipes", "layers", "models", "patterns", "backends", "tasks")


def listing(command: Parser) -> None:
    command.add_argument("what", nargs="?", metavar="TABLE", choices=TABLES, help=f"one of {', '.join(TABLES)}")


BAD_ROWS = "of your own data: name all that cannot be read, or leave them out and list them in a file (default: refuse)"

TRAIN = """Train a recipe and write its run folder: config.yaml, metrics.jsonl, checkpoints/, figures/ and report.html.

Every option of the recipe can be changed with --SECTION.OPTION VALUE, and an option of a choice by its path, such as
--model.layer.heads 4. `edgewise train RECIPE --help` shows the options of that recipe with their values. Another
choice, such as --graph causal or --optimizer sgd, starts from its own defaults. --metric roc_auc is short for
--evaluation.metric: the measure that chooses the weights, ends patience and is reported."""


def train(command: Parser) -> None:
    command.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="a name of `edgewise list recipes`, or the path of a YAML file"
    )
    number(command, "--seeds", "N", 1, 1000, 1, "repeat with N seeds: mean ± standard deviation")
    number(command, "--folds", "N", 2, 1000, None, "cross-validation: task.fold = 0 to N - 1, each with its own seed")
    command.add_argument("--epochs", type=amount, metavar="N", help="passes over the examples that train, at most")
    command.add_argument("--time", type=duration, metavar="T", help="of training at most, such as 90s, 10m or 2h")
    command.add_argument(
        "--run",
        type=folder,
        metavar="FOLDER",
        help="the run folder, of several runs the one that holds theirs, seed-N (default: runs/RECIPE-SEED, or where "
        "that is taken runs/RECIPE-SEED-2, ...)",
    )
    command.add_argument("--bad-rows", choices=("refuse", "skip"), help=BAD_ROWS)
    command.add_argument(
        "--print-config", action="store_true", help="print the recipe as it would be trained, and stop"
    )
    command.add_argument("-h", "--help", action="store_true", help="show this help; with a RECIPE, all of its options")


TUNE = """Search the options of a recipe that validate best, with Optuna (extra `tune`), and write them as a recipe.

The first trial is the recipe as it stands. Without --search, the learning rate, weight decay and, of the model, width,
depth, dropouts and names such as norm and activation are searched. Poor trials are stopped early. After a kill, or in
several terminals at once, the same command goes on with the same trials. Only at the end are the test data read, once,
with the best options and fresh seeds.

    edgewise tune texas-sage --folds 10 --time 30m
    edgewise tune cora-gcn --trials 40 --search model.layer=gcn,gat,sage-mean --search model.width=16..256"""

MOST_TRIALS, TRIALS = 1_000_000, 50


def tune(command: Parser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="a name of `edgewise list recipes`, or a YAML file's path")
    command.add_argument(
        "--trials",
        type=whole(1, MOST_TRIALS),
        metavar="N",
        help=f"in all, those of earlier calls among them (default: {TRIALS}, or as many as --time allows)",
    )
    command.add_argument(
        "--time", type=duration, metavar="T", help="of this call, such as 90s, 30m or 2h (default: 1h)"
    )
    command.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="search this instead: model.depth=1..4 or model.layer=gcn,gat; may be repeated",
    )
    number(command, "--seeds", "N", 1, 1000, 1, "a trial is the mean of N seeds")
    number(command, "--folds", "N", 2, 1000, None, "a trial is the mean of task.fold = 0 to N - 1")
    command.add_argument(
        "--run", type=folder, metavar="FOLDER", help="the folder of the search (default: runs/RECIPE-tuned)"
    )


def predict(command: Parser) -> None:
    of_run(command)
    command.add_argument(
        "input",
        metavar="INPUT",
        help="a number, a path or a text, as the task reads it, or as in test:17; a new one as JSON, or a .json file",
    )
    command.add_argument(
        "--out", metavar="TABLE", help="write a .csv or .parquet for all inputs of a file, or all nodes of a folder"
    )
    command.add_argument("--column", metavar="NAME", help="the column of INPUT (default: input, or the only one)")
    command.add_argument("--bad-rows", default="refuse", choices=("refuse", "skip"), help=BAD_ROWS)


GENERATE = """Let a model continue a text, which is printed as it is written, or write new graphs or images.

The options of drawing tokens are those of Hugging Face's `generate`, with its definitions.

    edgewise generate runs/own-text-model-0 --prompt "Once" --steps 300 --top-p 0.9 --repetition-penalty 1.2
    edgewise generate runs/own-text-model-0 --prompt "Once" --count 3 --stop END --json
    edgewise generate runs/grids-transformer-0 --count 20"""


def generate(command: Parser) -> None:
    of_run(command)
    command.add_argument("--prompt", default="\n", help="the text to continue (default: a new line)")
    number(command, "--steps", "N", 1, 1_000_000, 200, "tokens to add at most: characters, bytes or byte pairs")
    command.add_argument("--temperature", type=amount, metavar="T", help="0 is greedy (default: 0.8; of graphs 1)")
    number(command, "--top-k", "K", 1, MOST, None, "draw from the K most likely tokens only")
    for flag_, letter, default, about in (
        ("--top-p", "P", 1.0, "draw from the fewest likeliest tokens that have the probability P together"),
        ("--min-p", "P", 0.0, "draw from tokens at least P times as likely as the likeliest"),
        ("--repetition-penalty", "R", 1.0, "above 1, tokens that are there already become less likely"),
    ):
        command.add_argument(flag_, type=amount, metavar=letter, default=default, help=f"{about} (default: {default})")
    command.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before it; may be repeated")
    flag(command, "--no-cache", "recompute the past at every step instead of keeping keys and values")
    number(command, "--count", "N", 1, 10_000, None, "texts (default: 1), graphs or images (default: 10)")
    number(command, "--seed", "N", 0, MOST, 0, "of the random draws")


EXPLAIN = """Show why a run predicts what it predicts for an input, on one page: a score of every edge and node (atom,
patch, token, particle, tile), and how far to trust it: what becomes of the output as the highest scores go first.

    edgewise explain runs/cora-gat-0 12 --method leave-one-out
    edgewise explain runs/shakespeare-gpt-cpu-0 "ROMEO: " --method attention --layer 0"""
METHODS = (
    "attention, rollout, flow, relevance, gradient, integrated-gradients, learned-mask or leave-one-out "
    "(default: integrated-gradients)"
)


def explain(command: Parser) -> None:
    of_run(command)
    command.add_argument("input", metavar="INPUT", help="an input, as `edgewise predict` reads it")
    command.add_argument("--method", default="integrated-gradients", metavar="METHOD", help=METHODS)
    number(command, "--layer", "N", 0, 10_000, None, "of the method attention: a layer, from 0 (default: the last)")
    number(command, "--head", "N", 0, 10_000, None, "of the method attention: a head, from 0 (default: their mean)")
    command.add_argument(
        "--target",
        help="a class by its name, or an output's number (default: the likeliest); of several targets one by its name "
        "(age), or a class of it (party:left)",
    )
    command.add_argument("--out", metavar="PAGE", help="where to write it (default: in the run's explanations)")


EXPORT = """Write a run's best weights as a file that runs without Edgewise: ONNX, or PyTorch's exported program (pt2).
Numbers of nodes, edges, graphs and tokens are free. Beside it: how to call it, an example, and a script that does.

    edgewise export runs/cora-gat-0 --to onnx --out cora.onnx
    edgewise export runs/digits-vit-0 --to pt2
    edgewise export runs/shakespeare-gpt-cpu-0 --cache      # a step of decoding, and a script that continues texts
    edgewise export runs/digits-vit-0 --to aoti    # compiled for this machine, for Python and C++
    edgewise export runs/cora-gat-0 --to aoti --native    # by the C++ kernels, which lie beside it"""


def export(command: Parser) -> None:
    of_run(command)
    command.add_argument("--to", default="onnx", choices=("onnx", "pt2", "aoti"), help="the format (default: onnx)")
    command.add_argument("--out", metavar="FILE", help="the file to write (default: model.onnx, ... in RUN)")
    flag(command, "--cache", "a language model's decoding step, which reads keys and values of the past")
    flag(command, "--native", "use the C++ kernels on edges (pt2, aoti)")
    command.add_argument(
        "--radius",
        type=amount,
        metavar="R",
        help="the file finds the edges itself, of positions within R, and reads none",
    )


SERVE = """Predict over HTTP with a run's best weights: POST /predict reads {"rows": [...]}, each row what
`edgewise predict` reads, and writes {"predictions": [...]}. Of a model that writes, POST /generate reads {"prompt":
TEXT, "steps": 200, ...}, the options of `edgewise generate`, and with {"stream": true} sends events as the text grows.
The service's page, where a request can be tried, is /, its OpenAPI document /openapi.json. Ctrl-C stops it, once the
requests that have come are answered.

    edgewise serve runs/cora-gat-0
    edgewise serve runs/digits-vit-0 --port 8080"""


def serve(command: Parser) -> None:
    of_run(command)
    command.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="(default: 127.0.0.1, this machine only)"
    )
    number(command, "--port", "P", 0, 65535, 8000, "0 takes a free one")
    number(command, "--timeout", "SECONDS", 1, 3600, 30, "for a request to come, and for its predictions")
    number(command, "--megabytes", "M", 1, 1024, 8, "of a request at most")


EXPLORE = """Write one page, opened from disk, on which a model's attention is moved from graph to graph: edges are
drawn, removed and rewired, and every number is recomputed in the page.

    edgewise explore
    edgewise explore runs/demo/karate
    edgewise explore runs/cora-graph-transformer-0 --node 17"""


def explore(command: Parser) -> None:
    command.add_argument(
        "run", nargs="?", metavar="RUN", help="a run folder (default: the model that comes with Edgewise)"
    )
    command.add_argument(
        "--out", metavar="PAGE", help="the file to write (default: RUN/explorer.html, or explorer.html)"
    )
    command.add_argument("--node", metavar="NODE", help="show what lies around this node: its name, or its number")
    accepting(command)


REPORT = """Put runs side by side on one page that stands alone: what they reached, as mean and deviation over
repetitions with other seeds or folds, their curves, and the options that differ.

    edgewise report compare runs/cora-gcn-0 runs/cora-gcn-1 runs/cora-gat-0 runs/cora-gat-1"""


def report(command: Parser) -> None:
    command.add_argument("what", metavar="compare", choices=("compare",), help="curves, results, options that differ")
    command.add_argument("runs", nargs="+", metavar="RUN", help="two run folders or more")
    command.add_argument("--out", metavar="PAGE", help="the file to write (default: comparison.html)")


PLAN = """Show which backend would run an attention on a graph: candidates by predicted time, then the refusals.

    edgewise plan causal n=1024 --heads 8
    edgewise plan grid height=28 width=28 --channels 16 --score Gaussian
    edgewise plan complete receivers=100 --layer EGNN
    edgewise plan --calibrate
    edgewise plan --calibrate --device cuda"""


def plan(command: Parser) -> None:
    command.add_argument("pattern", nargs="?", metavar="PATTERN", help="a name of `edgewise list patterns`")
    command.add_argument(
        "options", nargs="*", metavar="OPTION=VALUE", help="the pattern's own options, such as n=4096 radius=64"
    )
    command.add_argument("--score", metavar="SCORE", help="a score of `attend` (default: Dot)")
    command.add_argument("--layer", metavar="LAYER", help="every call of a layer instead: EGNN, SchNet, TFN, ...")
    number(command, "--heads", "H", 1, 4096, 4, "attention heads")
    number(command, "--channels", "C", 1, 65536, 64, "channels per head")
    number(command, "--batch", "B", 1, MOST, 1, "graphs alike, side by side")
    dtypes = ("float64", "float32", "bfloat16", "float16")
    command.add_argument("--dtype", default="float32", choices=dtypes, help="(default: float32)")
    command.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"), help="where the graph would be (default: cpu)"
    )
    flag(command, "--calibrate", "first measure the device's speeds (1 to 5 s) and keep them")


CHECK = """Show which hard pairs of graphs a model tells apart with random weights, beside the Weisfeiler-Lehman tests.

    edgewise check expressiveness gnn layer=gin depth=5
    edgewise check expressiveness pair-network --pairs pairs.g6 --train 20"""


def check(command: Parser) -> None:
    command.add_argument("what", metavar="expressiveness", choices=("expressiveness",), help="what can be told apart")
    command.add_argument("model", metavar="MODEL", help="a name of `edgewise list models`")
    command.add_argument(
        "options", nargs="*", metavar="OPTION=VALUE", help="the model's own, such as layer=gin depth=5"
    )
    command.add_argument("--pairs", metavar="FILE", help="your own pairs, in graph6, two lines a pair")
    number(command, "--train", "STEPS", 0, 100_000, 0, "train on each pair first")
    number(command, "--relabellings", "N", 1, 10_000, 100, "copies of each graph")


STORE = """Build a graph on disk that may be larger than memory, show what one holds, or check it by its hashes.

    edgewise store build --edges edges-1.parquet edges-2.parquet --nodes nodes.csv --out papers --memory 4GB
    edgewise store info papers
    edgewise store check papers

Files are CSV, Parquet, .npy or safetensors. Edges: columns `sender` and `receiver` (or `source` and `target`, `from`
and `to`, ..., or what --ends says) and attributes, an array [2, E] or [E, 2], or `edge_index` and `edge_attr`. Nodes:
columns `node` or `id` (a name), `label`, `split` and features, an array [N, C], or `x`, `labels`, `train`, `valid` and
`test`."""
FEATURES = ("float32", "float16", "bfloat16", "int8")


def store(command: Parser) -> None:
    command.add_argument("what", metavar="WHAT", choices=("build", "info", "check"), help="build, info or check")
    command.add_argument("store", nargs="?", metavar="STORE", help="of info and check: the store's folder")
    command.add_argument("--edges", nargs="+", default=[], metavar="FILE", help="of build: who listens to whom")
    command.add_argument("--nodes", nargs="+", default=[], metavar="FILE", help="of build: what is known of the nodes")
    command.add_argument("--out", metavar="STORE", help="of build: the folder to write")
    command.add_argument("--memory", metavar="SIZE", help="of build: what it may take (default: 2GB)")
    flag(command, "--undirected", "of build: each edge both ways, and once")
    command.add_argument("--ends", metavar="FROM,TO", help="of build: the edges' columns of senders and receivers")
    command.add_argument("--features", choices=FEATURES, help="of build: their type (default: the files' own)")


DATA = """Show the standard sets of data that have a name, or fetch one over TLS, verified by its sha256, and write it
as files that a recipe for your own data reads.

    edgewise data list
    edgewise data get wn18rr
    edgewise train own-facts --task.data wn18rr --task.download true

Published files that lie in $EDGEWISE_DATA/NAME, or in --folder, are not fetched."""


def data(command: Parser) -> None:
    command.add_argument("what", metavar="WHAT", choices=("list", "get"), help="list or get")
    command.add_argument("name", nargs="?", metavar="NAME", help="of get: a name of `edgewise data list`")
    command.add_argument("--folder", type=folder, metavar="FOLDER", help="of get: where it is, or is to be put")


DOCTOR = """Show what is installed and what runs here, on one page to attach to a report of something that fails:
versions, backends and why one does not run, threads, instruction set, measured speeds, GPU and self-check, folders.

Of the environment only variables that matter to Edgewise are shown, and no path names its user."""


def nothing(command: Parser) -> None:
    pass


COMMANDS = {
    "demo": Command("train one attention on text, images and a social network", demo, "command.demo:demo"),
    "list": Command("show the systems and the recipes, or one table in full", listing, "command.listing:show"),
    "train": Command("train a recipe; write its run folder and report", train, "command.runs:train", TRAIN),
    "tune": Command("search a recipe's options by the validation data", tune, "tuning.command:tune", TUNE),
    "resume": Command("go on with an interrupted run, bit for bit", of_run, "command.runs:resume"),
    "evaluate": Command("measure a run on its validation and test data", evaluate, "command.inference:evaluate"),
    "predict": Command("predict for one input, or for all of a file or a folder", predict, "command.inference:predict"),
    "generate": Command(
        "let a model continue a text, or write new graphs or images", generate, "command.inference:generate", GENERATE
    ),
    "explain": Command(
        "show why a run predicts what it predicts, on one page", explain, "report.explanations:explain", EXPLAIN
    ),
    "export": Command("write a model as a file that runs without Edgewise", export, "command.inference:export", EXPORT),
    "serve": Command("predict for whoever sends a request, over HTTP", serve, "command.inference:serve", SERVE),
    "explore": Command(
        "write a page with a model's attention on graphs that you draw", explore, "explorer.page:explore", EXPLORE
    ),
    "report": Command("put runs side by side on one page", report, "report.compare:compare", REPORT),
    "plan": Command("show which backend would run on a graph, and why", plan, "command.planning:plan", PLAN),
    "check": Command("measure what a model can tell apart", check, "command.expressiveness:check", CHECK),
    "store": Command("build, show or check a graph on disk, larger than memory", store, "command.store:store", STORE),
    "data": Command("fetch standard data by name, or list it", data, "standard:data", DATA),
    "doctor": Command("show what is installed and what runs here", nothing, "command.doctor:doctor", DOCTOR),
}
