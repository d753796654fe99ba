"""`eks-llm advise`: where to run a model for a load, and the part of a stack file that asks for it."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from .output import console, fail


def advise(
    model: Annotated[str, typer.Argument(help="A model of the catalogue, or the path of its config.json.")],
    *,
    streams: Annotated[int, typer.Option(help="Requests under way at once.")],
    input_: Annotated[str, typer.Option("--input", metavar="TOKENS", help="Of a prompt: 800, or 512-1200.")],
    output: Annotated[str, typer.Option(metavar="TOKENS", help="Of an answer: 256, or 128-384.")],
    ttft: Annotated[
        str | None, typer.Option(metavar="TIME", help="99 % of first tokens within, such as 820ms. Default: any.")
    ] = None,
    tpot: Annotated[
        str | None, typer.Option(metavar="TIME", help="99 % of further tokens within, such as 42ms. Default: any.")
    ] = None,
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-west-2",
    limit: Annotated[int, typer.Option(min=1, help="Placements to show.")] = 8,
) -> None:
    """Rank instance types, formats and parallelism by cost, with estimated latency, and print a stack file's part."""
    from ..catalog.images import IMAGES
    from ..catalog.instances import INSTANCES
    from ..sizing import advise as sizing
    from ..sizing.own_prices import of_project

    try:
        name, shape = _model(model)
        mean_in, most_in = _tokens("--input", input_)
        mean_out, most_out = _tokens("--output", output)
        workload = sizing.Workload(
            streams, mean_in, most_in, mean_out, most_out, _seconds("--ttft", ttft), _seconds("--tpot", tpot)
        )
        own = of_project(Path.cwd())
        known = {place for instance in INSTANCES.values() for place in instance.on_demand_usd}
        known |= {place for place, prices in own.regions.items() if prices.on_demand} if own else set()
        if region not in known:
            raise ValueError(f"--region: no price in {region!r} is known (known: {', '.join(sorted(known))})")
        found = sizing.advise(name, shape, workload, region=region, vllm=IMAGES["openai"].vllm or "", prices=own)
    except ValueError as error:
        fail([str(error)])
    if not found:
        fail([f"nothing with a price in {region} serves {streams} streams of {name} within these targets"])
    best = sizing.cheapest_per_type(found)[:limit]
    out = console()
    out.print(_table(best, out.width), soft_wrap=True)
    out.print(
        "Estimates, see docs/sizing.md. The first one, to paste into Pulumi.<stack>.yaml below `platform:`;\n"
        "ZONE and BUCKET are for you to fill in:\n"
    )
    typer.echo(best[0].stack_file(name, region, workload, "" if model == name else model), nl=False)


def _model(model: str) -> tuple[str, Any]:
    from ..catalog.models import MODELS
    from ..core.problems import nearest
    from ..sizing.shape import from_config

    if model in MODELS:
        return model, MODELS[model]
    file = Path(model)
    if not file.is_file():
        raise ValueError(f"{model!r} is neither in the catalogue nor a config.json{nearest(model, list(MODELS))}")
    try:
        name = re.sub(r"[^a-z0-9.]+", "-", file.resolve().parent.name.lower()).strip("-.") or "model"
        return name, from_config(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{model}: {error.strerror}") from None


def _tokens(option: str, text: str) -> tuple[int, int]:
    """Mean and most of `800` or `512-1200`."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise ValueError(f"{option}: {text!r} is not a number of tokens such as 800, or a range such as 512-1200")
    return (low + high) // 2, high


def _seconds(option: str, text: str | None) -> float | None:
    from ..core.quantities import Duration

    if text is None:
        return None
    try:
        return float(Duration.parse(text))
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a time such as 820ms or 1.5s") from None


def _table(found: list[Any], width: int) -> str:
    head = ("instance", "format", "TP", "replicas", "nodes", "streams", "TTFT p99", "TPOT p99", "USD/month", "USD/1M")
    rows = [
        (
            item.instance_type,
            item.quantization,
            str(item.tensor_parallel),
            str(item.replicas),
            str(item.nodes),
            str(item.streams_per_replica),
            f"{item.latency.ttft_p99 * 1000:,.0f} ms",
            f"{item.latency.tpot_p99 * 1000:,.0f} ms",
            f"{item.usd_month:,.0f}",
            f"{item.usd_per_million_tokens:.2f}",
        )
        for item in found
    ]
    sizes = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    gap = "  " if sum(sizes) + 2 * len(sizes) <= width else " "
    lines = [
        gap.join(
            cell.ljust(size) if at < 2 else cell.rjust(size)
            for at, (cell, size) in enumerate(zip(row, sizes, strict=True))
        )
        for row in (head, *rows)
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"
