"""thinwire-perf: what compressed collectives cost on this machine, beside the uncompressed MPI calls that they replace.

  mpirun -n 4 thinwire-perf allreduce -b 1K -e 64M -f 4 --codec 'int8;int4:block=64'
  mpirun -n 4 thinwire-perf alltoall -b 16M -e 16M --codec all --json > alltoall.json
  thinwire-perf codecs --codec all -b 64M

Times are medians over rounds, with least and most, of the slowest rank. In every round each codec and the plain MPI call take
their turn, so that what disturbs the machine disturbs all alike. Every result is checked: against the exact one, and for equality
between ranks. Exit status: 0, 1 after a failed check or an error, 2 for wrong arguments.
"""
from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

import thinwire as tw

from ..compress.codec import auto_quality
from . import codecs, collectives
from .measure import DTYPES, LAWS, Usage, parse_size
from .table import describe

_LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # where a rank is known before MPI is loaded


class Parser(argparse.ArgumentParser):
    """Of several ranks only the first one speaks."""

    def _print_message(self, message, file=None):
        if next((os.environ[name] for name in _LAUNCHERS if name in os.environ), "0") == "0":
            super()._print_message(message, file)


def every_codec():
    """Specs of all codecs: short names, and the names that mean something else."""
    known = {codec: name for name, codec in tw.aliases().items()}
    for name in tw.codecs():
        known.setdefault(tw.codec(name), name)
    return list(known.values())


def _specs(text):
    specs = [spec.strip() for spec in text.split(";") if spec.strip()]
    for spec in specs:
        if spec != "all":
            try:
                if auto_quality(spec) is None:
                    tw.codec(spec)
            except (ValueError, TypeError) as error:
                raise argparse.ArgumentTypeError(str(error)) from None
    return specs


def _bytes(text):
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a size is a number of bytes such as 4096, 1K, 64M or 1G, not {text!r}") from None


def _at_least(least, kind=int):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            raise argparse.ArgumentTypeError(f"{kind.__name__} of at least {least} expected, not {text!r}")
        return value

    return parse


def parser() -> argparse.ArgumentParser:
    common = Parser(add_help=False)
    add = common.add_argument
    add(
        "--codec", type=_specs, action="extend", metavar="SPEC[;SPEC...]",
        help="codecs, also by repeating the option; all: every one (so for codecs without this option); auto: the communicator's choice",
    )  # fmt: skip
    add("-d", "--datatype", choices=DTYPES, default="float")
    add("-w", "--warmup", type=_at_least(0), default=5, metavar="N", help="calls before the rounds")
    add("--rounds", type=_at_least(1), default=7, metavar="N")
    add(
        "--input", metavar="LAW|FILE.npy",
        help=f"values: {', '.join(LAWS)}, or a file, flat or a row per rank; repeated up to the size. uint16 holds bfloat16's bits",
    )  # fmt: skip
    add("--threads", type=_at_least(1), metavar="N", help="threads a rank (default OMP_NUM_THREADS, else 1)")
    add("--json", action="store_true", help="print one JSON list of rows, with the columns as keys, and nothing else")

    main = Parser(prog="thinwire-perf", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    main.add_argument("--version", action="version", version=f"thinwire {tw.__version__}")
    commands = main.add_subparsers(dest="collective", required=True, metavar="COMMAND", parser_class=Parser)

    def subcommand(name, text, columns, run):
        sub = commands.add_parser(
            name, parents=[common], help=text, description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="columns:\n" + describe(columns),
        )  # fmt: skip
        sub.set_defaults(run=run, parser=sub)
        return sub.add_argument

    for name in collectives.COLLECTIVES:
        add = subcommand(name, f"{name} and the MPI call it replaces; under mpirun", collectives.COLUMNS, collectives.run)
        add("-b", "--minbytes", type=_bytes, default=32 << 20, metavar="SIZE", help="smallest array (default 32M)")
        add("-e", "--maxbytes", type=_bytes, metavar="SIZE", help="largest array (default: the smallest)")
        add("-i", "--stepbytes", type=_bytes, default=1 << 20, metavar="SIZE", help="step between sizes (default 1M)")
        add("-f", "--stepfactor", type=_at_least(1), default=1, metavar="K", help="factor between sizes, instead of a step")
        add("-n", "--iters", type=_at_least(1), default=20, metavar="N", help="calls a round (default 20)")
        add("-c", "--check", type=int, choices=(0, 1), default=1, help="check results (default 1)")
        add("-o", "--op", choices=("sum", "mean", "avg", "max", "min"), default="sum", help="of a reduction")
        add("-r", "--root", type=_at_least(0), default=0, metavar="RANK", help="of a broadcast")
        add("--schedule", default="auto", metavar="NAME")
        add("--feedback", action="store_true", help="feed back what the codec drops; errors are a first call's")
        add("--timeout", type=_at_least(0.001, float), default=60.0, metavar="SECONDS", help="wait for a missing rank (default 60)")

    add = subcommand("codecs", "codecs alone, without MPI", codecs.COLUMNS, codecs.run)
    add("-b", "--bytes", dest="minbytes", type=_bytes, default=64 << 20, metavar="SIZE", help="of the array (default 64M)")
    add("--cache", action="store_true", help=f"arrays of {codecs.CACHED >> 10} KiB, which stay in cache")
    return main


def command(arguments=None) -> int:
    options = parser().parse_args(arguments)
    alone = options.collective == "codecs"
    asked = options.codec or (["all"] if alone else [name for name, codec in tw.codecs().items() if codec.identity])
    options.all_codecs = "all" in asked
    if alone and any(auto_quality(spec) is not None for spec in asked):
        options.parser.error("argument --codec: auto is chosen by a communicator; name a codec")
    options.codec = list(dict.fromkeys(spec for entry in asked for spec in (every_codec() if entry == "all" else [entry])))
    if not alone:
        options.op = {"avg": "mean"}.get(options.op, options.op)
        options.maxbytes = options.maxbytes or options.minbytes
    if options.threads:
        tw.set_threads(options.threads)
    try:
        return options.run(options, options.parser)
    except Usage as error:
        options.parser.error(str(error))


def main():
    """The entry point: an exception on one rank ends all, so that none waits for it."""
    try:
        sys.exit(command())
    except SystemExit:
        raise
    except BaseException:
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or not mpi.Is_initialized() or mpi.COMM_WORLD.size == 1:
            raise
        traceback.print_exc()
        sys.stderr.flush()
        time.sleep(0.5)  # for the launcher to pass on what was printed: what reaches it after the abort is lost
        mpi.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main()
