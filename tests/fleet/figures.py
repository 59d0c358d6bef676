"""Writes what growth.py measured into docs/fleet.md, with what follows for 10,000 hosts."""

import os
import platform

import engines
import growth
import page

# What a service for objects asks for, in USD: S3's list price in us-east-1.
PUTS, GETS, GB_MONTH = 0.005 / 1000, 0.0004 / 1000, 0.023
FLEET = 10_000
# Slow requests of a recording that are published one by one, at most.
MOST_SLOW = 20_000
# Tables are dropped from the end.
LEVELS = (
    ("recordings", "findings"),
    ("waits", "upstreams"),
    ("samples",),
    ("requests", "request_parts"),
)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def seconds(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def minutes(value):
    if value < 1:
        return "< 1 s"
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def space(number):
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{number / limit:.{1 if number < 10 * limit else 0}f} {unit}"
    return f"{number:.0f} bytes"


def versions():
    import chdb
    import duckdb
    import pyspark

    return (
        f"DuckDB {duckdb.__version__}, ClickHouse {chdb.engine_version} (chdb) and "
        f"Spark\n{pyspark.__version__} (`local[2]`)"
    )


def grown(sizes, measured):
    """A table of queries, with each engine's seconds by size."""
    rows = []
    for heading in page.questions():
        if ("duckdb", heading) not in measured[sizes[0]]:
            continue
        row = [heading]
        for engine in engines.ENGINES:
            row.append(" / ".join(seconds(measured[n][engine.name, heading]) for n in sizes))
        rows.append(row)
    return table(("query", *(engine.__name__ for engine in engines.ENGINES)), rows)


def counts(sizes):
    return " / ".join(f"{n:,}" for n in sizes)


def figures(of_day, of_simulated, of_real):
    sizes, measured, by_table, rows = of_day
    hosts = sizes[-1][0]
    # The engines have two threads each.
    busy = os.getloadavg()[2] > 2 * os.cpu_count()
    text = (
        f"Measured on {os.cpu_count()} CPUs ({platform.machine()}) with {versions()};\n"
        f"files in the page cache; the better of {growth.RUNS} runs."
        + (" Others kept the CPUs busy,\nso seconds are an upper bound.\n\n" if busy else "\n\n")
        + "Made-up hosts for a day, a recording an hour, each with 240 slow requests, files as\n"
        f"they are published; {rows / 1e6:.1f} million rows in the end:\n\n"
    )
    text += table(
        ("hosts", "recordings", "files", "size", "published in"),
        [(n, f"{r:,}", f"{f:,}", space(b), f"{seconds(s)} s") for n, r, f, b, s in sizes],
    )
    text += "\n" + table(
        ("table", "files", "size", "a host and day", "a file"),
        [
            (f"`{name}`", f"{files:,}", space(total), space(total / hosts), space(total / files))
            for name, (files, total) in by_table.items()
        ],
    )
    text += f"\nSeconds of each query for {counts(growth.HOSTS)} hosts:\n\n"
    text += grown(growth.HOSTS, measured)
    sizes, measured = of_simulated
    text += (
        "\nSimulated host-days of `recordings`, `findings`, `waits` and `upstreams`, one file a "
        f"table and\nhost-day, as compaction or `--rotate 24h` leaves them; {sizes[-1][0]:,} are "
        f"ten days of {growth.SIMULATED_HOSTS} hosts:\n\n"
    )
    text += table(
        ("host-days", "files", "size"), [(f"{n:,}", f"{f:,}", space(b)) for n, f, b in sizes]
    )
    text += f"\nSeconds of each query for {counts(growth.HOST_DAYS)} host-days:\n\n"
    text += grown(growth.HOST_DAYS, measured)
    number, takes, of_request = of_real
    text += (
        f"\nWhat is published of {number} recordings of real servers (those that the tests keep, "
        "of some seconds\neach), for a recording:\n\n"
    )
    text += table(
        ("table", "median", "most"),
        [(f"`{name}`", space(middle), space(most)) for name, (middle, most) in takes.items()],
    )
    if takes["upstreams"][1] < 1000:
        text += "\nNone of these called another service: their `upstreams` have no rows.\n"
    return text + (
        f"\nA slow request takes {of_request[0]:.0f} bytes there (median; the most is "
        f"{of_request[1]:.0f}), in `requests` and\n`request_parts` together.\n"
    )


def a_day(takes):
    """Bytes of a host's day by level, of what a recording takes: those of all levels up to it."""
    sums, total = [], 0
    for tables in LEVELS:
        total += growth.HOURS * sum(takes[name] for name in tables)
        sums.append(total)
    return sums


def slope(measured, heading, engine, few, many):
    """Seconds for one more, between two sizes."""
    more = measured[many][engine.name, heading] - measured[few][engine.name, heading]
    return max(more, 0.0) / (many - few)


def paper(of_day, of_simulated, of_real):
    _, by_day, by_table, _ = of_day
    _, by_host_day = of_simulated
    _, takes, (of_request, of_most) = of_real
    hosts = growth.HOSTS[-1]
    made_up = a_day({name: total / hosts / growth.HOURS for name, (_, total) in by_table.items()})
    middle = a_day({name: middle for name, (middle, _) in takes.items()})
    most = a_day({name: most for name, (_, most) in takes.items()})
    busy = most[2] + growth.HOURS * MOST_SLOW * of_request
    busiest = most[2] + growth.HOURS * MOST_SLOW * of_most
    rows, tables = [], 0
    for level, names in enumerate(LEVELS, 1):
        tables += len(names)
        files = FLEET * growth.HOURS * tables
        total = FLEET * middle[level - 1]
        rows.append(
            (
                level,
                ("" if level == 1 else "and ") + ", ".join(f"`{name}`" for name in names),
                *(space(sums[level - 1]) for sums in (made_up, middle, most)),
                space(total),
                f"{files:,}",
                f"{files * PUTS:.2f}",
                f"{total * 30 / 1e9 * GB_MONTH:.2f}",
            )
        )
    text = (
        f"Bytes a host and day are {growth.HOURS} times those of a recording: of the made-up "
        f"hosts, of the median and\nthe largest recording of a real server, above. {FLEET:,} hosts "
        "are counted with the median. USD are\nS3's list price: for the PUTs of a day, and for "
        "keeping 30 days, each month.\n\n"
    )
    text += table(
        (
            "level",
            "tables",
            "made-up",
            "median",
            "largest",
            f"{FLEET:,} hosts a day",
            "files a day",
            "PUTs",
            "30 days",
        ),
        rows,
    )
    text += (
        f"\nThe bound of level 4 is {MOST_SLOW:,} slow requests a recording: {space(busy)} a host "
        f"and day with the\nmedian's bytes for each, {space(busiest)} with the most.\n\n"
        f"What a query costs, for one day of {FLEET:,} hosts on a machine as above. Compacted: "
        f"{FLEET:,} times what\none more host-day took between {growth.HOST_DAYS[1]} and "
        f"{growth.HOST_DAYS[2]:,}. In place: {FLEET:,} times what one more host took\nbetween "
        f"{growth.HOSTS[1]} and {growth.HOSTS[2]}, a file an hour.\n\n"
    )
    head, rows = ["query"], []
    for engine in engines.ENGINES:
        head += [f"{engine.__name__}, compacted", "in place"]
    for heading in growth.OF_METADATA:
        row = [heading]
        for engine in engines.ENGINES:
            # What is of one day does not grow with days.
            few, many = growth.HOST_DAYS[1:]
            if heading == growth.OF_A_DAY:
                few, many = growth.HOST_DAYS[:2]
            row.append(minutes(FLEET * slope(by_host_day, heading, engine, few, many)))
            few, many = growth.HOSTS[1:]
            row.append(minutes(FLEET * slope(by_day, heading, engine, few, many)))
        rows.append(row)
    text += table(head, rows)
    opened = FLEET * growth.HOURS
    return text + (
        f"\nIn place such a query opens {opened:,} files of each of its tables. From S3 that is at "
        f"least two GETs\neach, {2 * opened * GETS:.2f} USD a table and query.\n"
    )


def write(of_day, of_simulated, of_real):
    page.write_section("figures", figures(of_day, of_simulated, of_real))
    page.write_section("paper", paper(of_day, of_simulated, of_real))
