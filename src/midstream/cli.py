"""The command `midstream`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from midstream.errors import MidstreamError

app = typer.Typer(
    name="midstream",
    help="Stateful streaming jobs on Spark that can be changed while they run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Benchmarks: results are checked before a figure is printed.", no_args_is_help=True)
app.add_typer(bench, name="bench")
nexmark = typer.Typer(help="Nexmark: the events of an auction site.", no_args_is_help=True)
app.add_typer(nexmark, name="nexmark")

Json = Annotated[Path | None, typer.Option("--json", help="Also write the record to this file.")]


def _version(wanted: bool) -> None:
    if wanted:
        from midstream import __version__

        typer.echo(f"midstream {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None: ...


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(help="How many epochs to run.", min=1)] = 20,
    rate: Annotated[int, typer.Option(help="Generated bids per second.", min=1)] = 2000,
) -> None:
    """Run a live job over generated bids and show its results as they come."""
    from midstream.demo import run

    raise typer.Exit(run(epochs, rate))


@app.command()
def sinks(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a job that is stopped: a path or a URI.")],
) -> None:
    """Show whether the sinks of a job have what its checkpoint says was published to them.

    Use it after restoring a backup. Nothing is changed. Ends with 0 if all fit, with 1 if one does not. It loads code
    from the checkpoint: use it on checkpoints that you trust.
    """
    from midstream.job.sink_report import report

    try:
        found = report(checkpoint, typer.echo)
    except MidstreamError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    for each in found:
        typer.echo(f"{'ok     ' if each.fits else 'DIFFERS'}  {each.sink}  {each.target}\n         {each.found}")
    raise typer.Exit(0 if all(each.fits for each in found) else 1)


@app.command()
def ingest(
    to: Annotated[Path, typer.Option(help="Directory of the spool; made if it does not exist.")],
    listen: Annotated[
        str, typer.Option(help="HOST:PORT for HTTP and TCP; port 0 takes a free one.")
    ] = "127.0.0.1:7000",
    format: Annotated[str, typer.Option(help="How records are written: json, csv or arrow.")] = "json",
    schema: Annotated[
        str | None,
        typer.Option(help="Columns, as 'user long, price double'; without it each line is a string `value`."),
    ] = None,
    max_bytes: Annotated[
        int, typer.Option(help="The most bytes on disk; at this bound producers wait.", min=1 << 16)
    ] = 10 << 30,
    max_record: Annotated[int, typer.Option(help="The most bytes in a line; longer ones are refused.")] = 1 << 20,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Listen where other machines can connect; needs a token.")
    ] = False,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that producers must send.")] = None,
    max_connections: Annotated[
        int, typer.Option(help="The most connections; beyond it, the least active are closed.", min=1)
    ] = 1000,
    idle: Annotated[float, typer.Option(help="Seconds after which a silent connection is closed.", min=0.1)] = 300.0,
) -> None:
    """Take records over TCP and HTTP, and acknowledge them when they are on disk.

    Read them with ms.sources.spool(DIRECTORY). Ends with 0 on Ctrl-C or SIGTERM, with 1 on an error.
    """
    from midstream.ingest.command import run

    run(to, listen, format, schema, max_bytes, max_record, allow_remote, token_file, max_connections, idle)


@nexmark.command("generate")
def nexmark_generate(
    out: Annotated[Path, typer.Option(help="Directory for the files; made if it does not exist.")],
    events: Annotated[int, typer.Option(help="How many events: persons, auctions and bids.", min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Another seed gives other events.", min=0)] = 0,
    out_of_order: Annotated[int, typer.Option(help="Mix events within groups of this many; 1: in order.", min=1)] = 1,
    events_per_second: Annotated[
        int, typer.Option(help="How many events share a second of event time.", min=1)
    ] = 1_000,
) -> None:
    """Write events as Parquet: the folders person, auction and bid.

    The same options give the same events. An earlier result in the directory is replaced; anything else is refused.
    """
    from midstream.nexmark import command

    command.generate(events, seed, out, out_of_order, events_per_second)


@bench.command()
def throughput(
    keys: Annotated[int, typer.Option(help="Number of keys.")] = 1_000_000,
    rows: Annotated[int, typer.Option(help="Rows per epoch.")] = 200_000,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the keys, 0: uniform.")] = 0.0,
    epochs: Annotated[int, typer.Option(help="Epochs per contestant and round.")] = 12,
    rounds: Annotated[int, typer.Option(help="Rounds, in rotated order.")] = 3,
    contestants: Annotated[str, typer.Option(help="Which of them, with commas; all but those in runs if empty.")] = "",
    json: Json = None,
) -> None:
    """Count and sum per key: Midstream, Spark's own operators, and the ceiling of any Python operator."""
    from midstream.bench import throughput as bench_throughput

    chosen = tuple(contestants.split(",")) if contestants else bench_throughput.DEFAULT
    bench_throughput.run(keys, rows, skew, epochs, rounds, chosen, json=json)


@bench.command()
def epoch(
    rows: Annotated[int, typer.Option(help="Rows per epoch for the floor.")] = 1000,
    epochs: Annotated[int, typer.Option(help="Epochs per measurement.")] = 40,
    sizes: Annotated[
        str, typer.Option(help="Numbers of keys for the growth, separated by commas.")
    ] = "100000,1000000,10000000",
    json: Json = None,
) -> None:
    """The floor of an epoch, and how its time grows with the state."""
    from midstream.bench import epoch as bench_epoch

    bench_epoch.run(rows=rows, epochs=epochs, sizes=tuple(int(size) for size in sizes.split(",")), json=json)


@bench.command()
def modify(
    rate: Annotated[int, typer.Option(help="Rows per second.")] = 20_000,
    keys: Annotated[int, typer.Option(help="Number of keys.")] = 100_000,
    seconds: Annotated[int, typer.Option(help="Length of the stretch around each change.")] = 20,
    rounds: Annotated[int, typer.Option(help="How often each change is made.")] = 3,
    json: Json = None,
) -> None:
    """Latency around a live change, against the steady state and against Spark's stop, change and restart."""
    from midstream.bench import modify as bench_modify

    bench_modify.run(rate=rate, keys=keys, seconds=seconds, rounds=rounds, json=json)


@bench.command()
def endurance(
    modifications: Annotated[int, typer.Option(help="How many modifications, one after the other.", min=1)] = 1_000,
    rows: Annotated[int, typer.Option(help="Rows per epoch.", min=1)] = 500,
    json: Json = None,
) -> None:
    """Epoch time, memory and files of one job that is modified again and again."""
    from midstream.bench import endurance as bench_endurance

    bench_endurance.run(modifications=modifications, rows=rows, json=json)


Query = Annotated[str, typer.Argument(help="q0 to q8.")]
Events = Annotated[int, typer.Option(help="How many events: persons, auctions and bids.", min=1)]
Seed = Annotated[int, typer.Option(help="Another seed gives other events.", min=0)]
RowsPerEpoch = Annotated[int, typer.Option(help="Events in an epoch, 0: all in one.", min=0)]
OutOfOrder = Annotated[int, typer.Option(help="Mix events in groups of this many, 1: in order.", min=1)]
PerSecond = Annotated[int, typer.Option(help="Events per second of their own time.", min=1)]
Slots = Annotated[int, typer.Option(help="Tasks that share the keys, 0: one for each core.", min=0)]


@nexmark.command("run")
def nexmark_run(
    query: Query,
    out: Annotated[Path, typer.Option(help="Directory for the results, as Parquet.")],
    checkpoint: Annotated[Path, typer.Option(help="Directory of the job; use it again to continue.")],
    events: Events = 100_000,
    seed: Seed = 0,
    rows_per_epoch: RowsPerEpoch = 10_000,
    out_of_order: OutOfOrder = 1,
    events_per_second: PerSecond = 1_000,
    slots: Slots = 0,
    modify: Annotated[
        Path | None,
        typer.Option(
            help="Python file with changes(epoch), which returns a list of changes.", exists=True, dir_okay=False
        ),
    ] = None,
) -> None:
    """Run a query over events that end, close its windows, and write the results.

    If it is killed, run it again with the same options, and it goes on where it was.
    """
    from midstream.nexmark import command, generator, running

    config = generator.Config(seed=seed, out_of_order=out_of_order, events_per_second=events_per_second)
    command.run(running.QueryRun(query, events, config, out, checkpoint, rows_per_epoch, slots), modify)


@nexmark.command("check")
def nexmark_check(
    query: Query,
    out: Annotated[
        Path | None,
        typer.Option(help="Results of `nexmark run` with the same events; by default the query runs first."),
    ] = None,
    events: Events = 100_000,
    seed: Seed = 0,
    rows_per_epoch: RowsPerEpoch = 10_000,
    out_of_order: OutOfOrder = 1,
    events_per_second: PerSecond = 1_000,
    slots: Slots = 0,
) -> None:
    """Compare results with those that DuckDB computes from the same events, as multisets; exit 1 if they differ."""
    from midstream.nexmark import command, generator

    config = generator.Config(seed=seed, out_of_order=out_of_order, events_per_second=events_per_second)
    raise typer.Exit(0 if command.check(query, events, config, out, rows_per_epoch, slots) else 1)


@nexmark.command("bench")
def nexmark_bench(
    queries: Annotated[list[str] | None, typer.Argument(help="q0 to q8; all by default.")] = None,
    events: Annotated[int, typer.Option(help="How many events; 0: nine epochs of them.", min=0)] = 0,
    rows_per_epoch: Annotated[
        int, typer.Option(help="Events in an epoch; 0: about as many as we process in a second.", min=0)
    ] = 0,
    rounds: Annotated[int, typer.Option(help="How often each query runs; the median counts.", min=1)] = 4,
    json: Json = None,
) -> None:
    """Events per second of each query, ours and as plain Structured Streaming; results are checked first."""
    from midstream.nexmark import bench as nexmark_bench
    from midstream.nexmark.queries import QUERIES

    nexmark_bench.run(queries or tuple(QUERIES), events, rows_per_epoch, rounds, json)


@bench.command()
def rescale(
    state_mb: Annotated[int, typer.Option(help="Size of the state.")] = 500,
    strategy: Annotated[
        str, typer.Option(help="Strategies, separated by commas, 'spark' for Spark's own way.")
    ] = "all",
    skew: Annotated[float, typer.Option(help="Zipf exponent of the keys, 0: uniform.")] = 1.2,
    rate: Annotated[int, typer.Option(help="Rows per second.")] = 2_000,
    seconds: Annotated[int, typer.Option(help="Length of the steady stretch before the move.")] = 30,
    every_ms: Annotated[int, typer.Option(help="How often an epoch begins, in milliseconds.")] = 250,
    store_mb_per_s: Annotated[int, typer.Option(help="Read the store no faster than this, 0: as fast as it is.")] = 0,
    rounds: Annotated[int, typer.Option(help="Runs of each strategy, in turn; the median counts.")] = 1,
    cache: Annotated[
        Path | None, typer.Option(help="Directory for the executors' copies, on a disk of its own.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="File for a picture of latency over time.")] = None,
    json: Json = None,
) -> None:
    """Latency while state moves from two executors to three, for each strategy and for Spark's own way."""
    from midstream.bench import rescale as bench_rescale
    from midstream.placement.strategies import NAMES

    names = (*NAMES, bench_rescale.SPARK) if strategy == "all" else tuple(strategy.split(","))
    bench_rescale.run(
        state_mb=state_mb, strategies=names, skew=skew, rate=rate, seconds=seconds, every_ms=every_ms,
        store_mb_per_s=store_mb_per_s, rounds=rounds, cache=cache, json=json, picture=picture,
    )  # fmt: skip


@bench.command("windows")
def windows_bench(
    keys: Annotated[int, typer.Option(help="Number of keys.")] = 1_000,
    rows: Annotated[int, typer.Option(help="Rows per epoch.")] = 500_000,
    overlaps: Annotated[str, typer.Option(help="In how many windows a row is, separated by commas.")] = "1,10,100",
    epochs: Annotated[int, typer.Option(help="Epochs of each run; the first third is warm-up.")] = 18,
    rounds: Annotated[int, typer.Option(help="Runs of each, in turn.")] = 2,
    json: Json = None,
) -> None:
    """What a row costs in sliding windows, by how many of them it is in."""
    from midstream.bench import windows

    try:
        counts = [int(overlap) for overlap in overlaps.split(",")]
    except ValueError:
        raise typer.BadParameter("write numbers, separated by commas, such as 1,100", param_hint="--overlaps") from None
    windows.run(keys=keys, rows=rows, overlaps=counts, epochs=epochs, rounds=rounds, json=json)


@bench.command("idle")
def idle_bench(
    keys: Annotated[int, typer.Option(help="Number of keys.")] = 1_000_000,
    rows: Annotated[int, typer.Option(help="Rows per epoch.")] = 200_000,
    pairs: Annotated[int, typer.Option(help="Epochs of each contestant.")] = 40,
    json: Json = None,
) -> None:
    """CPU time and bytes written per million rows while nothing moves, against state in memory only."""
    from midstream.bench import idle

    idle.run(keys=keys, rows=rows, pairs=pairs, json=json)


@bench.command("ingest")
def ingest_bench(
    records: Annotated[int, typer.Option(help="Records of 100 bytes, over all producers.")] = 1_000_000,
    producers: Annotated[int, typer.Option(help="Connections that send at once.")] = 4,
    kills: Annotated[int, typer.Option(help="How often the server is killed meanwhile.", min=0)] = 0,
    json: Json = None,
) -> None:
    """Records per second that the server acknowledges once they are on disk."""
    from midstream.bench import ingest as bench_ingest

    bench_ingest.run(records=records, producers=producers, kills=kills, json=json)


@bench.command()
def siege(
    malformed: Annotated[int, typer.Option(help="Malformed requests, over all rounds.")] = 10_000,
    connections: Annotated[int, typer.Option(help="Slow and idle connections.", min=0)] = 1_000,
    seconds: Annotated[float, typer.Option(help="Length of each half of a round.")] = 30.0,
    rounds: Annotated[int, typer.Option(help="Undisturbed and besieged, one after the other.")] = 2,
    json: Json = None,
) -> None:
    """How long producers wait for the server while others attack it."""
    from midstream.bench import siege as bench_siege

    bench_siege.run(malformed=malformed, connections=connections, seconds=seconds, rounds=rounds, json=json)


def main() -> None:
    """Run the command; show errors of Midstream as a message, not a traceback."""
    try:
        app()
    except MidstreamError as error:
        typer.secho(f"midstream: {error}", fg="red", err=True)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
