"""The long form: fifty hosts for a day, a thousand simulated host-days, and how times grow.

Writes its figures into the section of docs/fleet.md.
"""

import os
import platform
import shutil
import statistics
import time
from pathlib import Path

import check
import engines
import page

HOURS = 24
HOSTS = (5, 15, 50)
HOST_DAYS = (10, 100, 1000)
# What a fleet's overview needs: a few rows a host and hour.
METADATA = ("recordings", "findings", "waits", "upstreams")
OF_METADATA = (
    "Which hosts have a finding that the release before did not have",
    "Which function's wait grew",
    "Which upstream got slower",
    "Which recordings to trust less",
)


def size(folder):
    """How many files are below, and their bytes."""
    sizes = [path.stat().st_size for path in Path(folder).rglob("*.parquet")]
    return len(sizes), sum(sizes)


def times(fleet, headings):
    """Seconds of each query on each engine: the median of three, after the tables are known."""
    found = {}
    for engine in engines.ENGINES:
        running = engine(str(fleet))
        for statement in page.statements(engine.name, "Queries"):
            running.execute(statement)
        for heading in headings:
            sql = page.questions()[heading]
            seconds = []
            for _ in range(3):
                started = time.monotonic()
                running.rows(sql)
                seconds.append(time.monotonic() - started)
            found[engine.name, heading] = statistics.median(seconds)
        running.close()
    return found


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def seconds(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def grown(sizes, measured, headings):
    """A table of queries, with each engine's seconds by size."""
    rows = []
    for heading in headings:
        row = [heading]
        for engine in engines.ENGINES:
            row.append(" / ".join(seconds(measured[n][engine.name, heading]) for n in sizes))
        rows.append(row)
    return rows


def day(checks):
    """Fifty hosts for a day, with five and fifteen on the way."""
    folder, fleet = check.BUILD / "fleet-recordings", check.BUILD / "fleet"
    shutil.rmtree(fleet, ignore_errors=True)
    sizes, measured = [], {}
    headings = list(page.questions())
    for hosts in HOSTS:
        releases = check.made_up(folder, hosts, HOURS)
        recordings = sum(len(list(release.iterdir())) for release in releases)
        shutil.rmtree(fleet, ignore_errors=True)
        started = time.monotonic()
        with checks.check(f"{hosts} hosts are published"):
            check.publish(releases, fleet)
        took = time.monotonic() - started
        files, total = size(fleet)
        sizes.append((hosts, recordings, files, total, took))
        measured[hosts] = times(fleet, headings)
    check.check_queries(checks, fleet)
    check.check_totals(checks, releases, fleet, every=1)
    check.check_again(checks, releases, fleet)
    check.check_json_lines(checks, releases, fleet)
    check.check_stored(checks, fleet)
    check.check_iceberg(checks, fleet)
    check.check_s3(checks, releases, fleet)
    by_table = []
    for name in check.TABLES:
        files, total = size(fleet / name)
        by_table.append((name, files, total))
    return sizes, measured, headings, by_table


def simulated(checks):
    """Host-days of the tables that an overview needs, a file each, as compaction leaves them."""
    fleet, folder = check.BUILD / "fleet", check.BUILD / "fleet-simulated"
    sizes, measured = [], {}
    for host_days in HOST_DAYS:
        shutil.rmtree(folder, ignore_errors=True)
        duck = engines.DuckDB(str(fleet))
        for name in METADATA:
            # Each simulated host is one of the fifty, under another name.
            duck.execute(
                f"""
                COPY (
                    SELECT * REPLACE (
                        'sim-' || lpad(n::VARCHAR, 4, '0') AS host,
                        recording || '-' || n AS recording
                    ) FROM read_parquet('FLEET/{name}/*/*/*.parquet', hive_partitioning = true)
                    JOIN range({host_days}) AS sim(n)
                      ON host = 'web-' || lpad((n % {HOSTS[-1]})::VARCHAR, 2, '0')
                    ORDER BY host, recording, line
                ) TO '{folder}/{name}' (
                    FORMAT parquet, COMPRESSION zstd, PARTITION_BY (date, host),
                    WRITE_PARTITION_COLUMNS true
                )
                """
            )
        # The other tables have to be there, too.
        for name in set(check.TABLES) - set(METADATA):
            source = next((fleet / name).rglob("*.parquet"))
            target = folder / source.relative_to(fleet)
            target.parent.mkdir(parents=True)
            shutil.copy(source, target)
        duck.close()
        sizes.append((host_days, *map(sum, zip(*(size(folder / n) for n in METADATA)))))
        measured[host_days] = times(folder, OF_METADATA)
    answers = {}
    for engine in engines.ENGINES:
        running = engine(str(folder))
        for statement in page.statements(engine.name, "Queries"):
            running.execute(statement)
        for heading in OF_METADATA:
            with checks.check(f"{engine.name}, {HOST_DAYS[-1]} host-days: {heading}"):
                rows = running.rows(page.questions()[heading])
                first = answers.setdefault(heading, rows)
                assert rows and check.same_rows(first, rows), f"{first[:3]} … is {rows[:3]} …"
        running.close()
    return sizes, measured


def versions():
    import chdb
    import duckdb
    import pyspark

    return (
        f"DuckDB {duckdb.__version__}, ClickHouse {chdb.engine_version} (chdb) and "
        f"Spark {pyspark.__version__} (`local[2]`)"
    )


def megabytes(total):
    return f"{total / 1e6:.1f} MB"


def section(of_day, of_simulated):
    sizes, measured, headings, by_table = of_day
    hosts = sizes[-1][0]
    text = (
        f"Measured on {os.cpu_count()} CPUs ({platform.machine()}), with {versions()}. "
        "The seconds are for the\nsizes one after the other, each the median of three runs.\n\n"
        f"Made-up hosts for a day, a recording an hour, each with 240 slow requests:\n\n"
    )
    text += table(
        ("hosts", "recordings", "files", "size", "published in"),
        [(n, r, f, megabytes(b), f"{seconds(s)} s") for n, r, f, b, s in sizes],
    )
    text += "\n" + table(
        ("table", "files", "size", "a host and day", "a file"),
        [
            (f"`{n}`", f, megabytes(b), f"{b / hosts / 1e3:.0f} kB", f"{b / f / 1e3:.1f} kB")
            for n, f, b in by_table
        ],
    )
    counts = " / ".join(str(n) for n, *_ in sizes)
    text += f"\nSeconds of each query for {counts} hosts:\n\n"
    head = ("query", *(engine.__name__ for engine in engines.ENGINES))
    text += table(head, grown(HOSTS, measured, headings))
    sizes, measured = of_simulated
    text += (
        "\nSimulated host-days of `recordings`, `findings`, `waits` and `upstreams`, compacted to "
        "one file a\ntable and host-day:\n\n"
    )
    text += table(
        ("host-days", "files", "size"), [(n, f, megabytes(b)) for n, f, b in sizes]
    )
    counts = " / ".join(str(n) for n in HOST_DAYS)
    text += f"\nSeconds of each query for {counts} host-days:\n\n"
    return text + table(head, grown(HOST_DAYS, measured, OF_METADATA))


def main():
    checks = check.Checks()
    of_day = day(checks)
    of_simulated = simulated(checks)
    if not checks.failures:
        page.write_section("figures", section(of_day, of_simulated))
    return checks.sum_up()
