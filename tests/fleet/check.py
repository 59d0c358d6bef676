"""Holds `whywait publish` and the queries of docs/fleet.md against a made-up fleet."""

import contextlib
import io
import json
import math
import os
import shutil
import subprocess
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import engines
import page

ROOT = Path(__file__).resolve().parents[2]
BUILD = engines.BUILD
WHYWAIT = os.environ["WHYWAIT"]
TABLES = (
    "recordings",
    "findings",
    "requests",
    "request_parts",
    "waits",
    "samples",
    "upstreams",
)
# Two publishers at once have so many recordings.
TWICE = 50
# What a query must show besides being the same everywhere: that it found what was put there.
SHOWS = {
    "Which hosts have a finding that the release before did not have": "lock-contention",
    "Which function's wait grew": "shop::cart::add",
    "Which functions use the CPUs": "shop::pages::render",
    "Which upstream got slower": "10.0.0.7:5432",
}


class Checks:
    """Runs checks one by one; one that fails keeps no other from running."""

    def __init__(self):
        self.passed, self.failures = 0, []

    @contextlib.contextmanager
    def check(self, name):
        started = time.monotonic()
        try:
            yield
        except Exception as error:  # noqa: BLE001: whatever it is, the next check runs
            detail = io.StringIO()
            traceback.print_exc(limit=-2, file=detail)
            self.failures.append(f"{name}: {error}")
            print(f"FAILED {name}: {error}\n{detail.getvalue()}", flush=True)
        else:
            self.passed += 1
            print(f"ok: {name} ({time.monotonic() - started:.1f} s)", flush=True)

    def sum_up(self):
        print(f"{self.passed} passed, {len(self.failures)} failed")
        return 1 if self.failures else 0


def whywait(*args, code=0, **options):
    """Runs whywait, which must exit with `code`. Gives what it wrote."""
    run = subprocess.run(
        [WHYWAIT, *map(str, args)], capture_output=True, text=True, check=False, **options
    )
    if run.returncode != code:
        raise AssertionError(f"whywait {args}: exit code {run.returncode}: {run.stderr}")
    return run


def made_up(folder, hosts, hours):
    """The recordings of a fleet. Gives the folders of its releases."""
    shutil.rmtree(folder, ignore_errors=True)
    # As scripts/test has it, after which there is nothing to build.
    build = ["cargo", "build", "--quiet", "--locked", "--workspace", "--example", "make_fleet"]
    subprocess.run([*build, "--features", "whywait/s3"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    example = ROOT / target / "debug/examples/make_fleet"
    subprocess.run([example, str(folder), str(hosts), str(hours)], check=True)
    return sorted(folder.iterdir())


def publish(releases, fleet, hosts=None):
    """Publishes what is not there yet, all of it or that of the first hosts."""
    for release in releases:
        recordings = sorted(release.iterdir())
        if hosts is not None:
            recordings = [path for path in recordings if int(path.name.split("-")[1]) < hosts]
        labels = ("--service", "shop", "--release", release.name)
        whywait("publish", "--new", *labels, *recordings, fleet)


def files(folder):
    """Each file below, with its bytes and when it was written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def same(a, b):
    """Whether two values are the same but for the last digits of a number."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a == b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return a == b


def same_rows(one, other):
    return len(one) == len(other) and all(
        len(a) == len(b) and all(map(same, a, b)) for a, b in zip(one, other, strict=True)
    )


def check_queries(checks, fleet, runs=1, label="", headings=None):
    """Each question of the page, on each engine. Gives the seconds of each by engine."""
    answers, seconds = {}, {}
    for engine in engines.ENGINES:
        with checks.check(f"{label}{engine.name}: the tables are known"):
            running = engine(str(fleet))
            for statement in page.statements(engine.name, "Queries"):
                running.execute(statement)
        for heading, sql in page.questions().items():
            if headings and heading not in headings:
                continue
            with checks.check(f"{label}{engine.name}: {heading}"):
                took = []
                for _ in range(runs):
                    started = time.monotonic()
                    rows = running.rows(sql)
                    took.append(time.monotonic() - started)
                seconds[engine.name, heading] = min(took)
                assert rows, "no rows"
                first = answers.setdefault(heading, rows)
                assert same_rows(first, rows), f"{first[:3]} … is {rows[:3]} … here"
                assert SHOWS.get(heading, "") in str(rows), f"no {SHOWS[heading]} in {rows}"
        running.close()
    return seconds


def report(recording):
    text = whywait("report", recording, "--format", "json").stdout
    waits = whywait("report", recording, "--waits", "--format", "json").stdout
    return json.loads(text), json.loads(waits)["waits"]


def parts(time, name=""):
    """The figures of a report's table of time, by name."""
    for part, ns in time.items():
        if isinstance(ns, dict):
            yield from parts(ns, f"{name}{part}.")
        elif ns:
            yield f"{name}{part}", ns


def check_totals(checks, releases, fleet):
    """Sums of what was published are what each recording's own report says."""
    duck = engines.DuckDB(str(fleet))
    for statement in page.statements("duckdb", "Queries"):
        duck.execute(statement)

    def by_host_and_hour(sql):
        sums = {}
        for host, hour, *values in duck.rows(sql):
            sums.setdefault((host, hour), []).append(tuple(values))
        return sums

    key = "t.host, extract(hour FROM r.ts)"
    of = "JOIN recordings r USING (recording)"
    published = {
        "requests": f"SELECT {key}, sum(weight) FROM requests t {of} GROUP BY ALL",
        "parts": f"SELECT {key}, part, sum(ns) FROM request_parts t {of} GROUP BY ALL",
        "findings": f"SELECT {key}, code, place, saving_at_most_ns FROM findings t {of}",
        "waits": f"SELECT {key}, sum(total_ns), sum(times), sum(critical_ns) FROM waits t {of} "
        "GROUP BY ALL",
        "calls": f"SELECT {key}, peer, calls, total_ns FROM upstreams t {of}",
        "recording": "SELECT host, extract(hour FROM ts), requests, slow_requests, p50_ns, p99_ns, "
        "max_ns, lost, events, complete FROM recordings",
        "samples": f"SELECT {key}, sum(samples) FROM samples t {of} GROUP BY ALL",
    }
    published = {name: by_host_and_hour(sql) for name, sql in published.items()}
    recordings = sorted(path for release in releases for path in release.iterdir())
    samples = dict(
        duck.rows(
            "SELECT split_part(filename, '/', -3), sum(periods) FROM read_parquet("
            f"{[f'{release}/*/seg-*/samples.parquet' for release in releases]}, filename = true) "
            "GROUP BY ALL"
        )
    )
    duck.close()
    with checks.check(f"{len(recordings)} recordings: the figures are the report's"):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for recording, reported in zip(recordings, pool.map(report, recordings), strict=True):
                host, hour = recording.name.rsplit("-", 1)
                expected = figures(*reported) | {"samples": [(samples[recording.name],)]}
                for name, rows in expected.items():
                    found = sorted(published[name].get((host, int(hour)), []))
                    assert found == sorted(rows), (
                        f"{recording.name}: {name}: published {found}, the report has {rows}"
                    )


def figures(said, waits):
    """What a recording's report says, as rows of what is published."""
    requests, coverage = said["requests"], said["coverage"]
    late = (requests.get("open") or {"late": 0})["late"]
    return {
        "requests": [(requests["count"] + late,)],
        "parts": list(parts(requests["time"])),
        "findings": [
            (finding["code"], place, finding["saving"]["at_most_ns"])
            for place, finding in enumerate(said["findings"], 1)
        ],
        "waits": [
            tuple(sum(row[name] for row in waits) for name in names)
            for names in [("total_ns", "count", "critical_ns")]
        ],
        "calls": [(c["peer"], c["calls"], c["total_ns"]) for c in said["calls"]],
        "recording": [
            (
                requests["count"],
                requests["slow"],
                *(requests["latency_ns"][name] for name in ("p50", "p99", "max")),
                coverage["lost"],
                coverage["events"],
                coverage["complete"],
            )
        ],
    }


def check_again(checks, releases, fleet):
    """Publishing once more, and two at once, changes nothing."""
    before = files(fleet)
    with checks.check("publishing again changes nothing"):
        publish(releases, fleet)
        for release in releases:
            args = ("--service", "shop", "--release", release.name)
            recording = sorted(release.iterdir())[0]
            said = whywait("publish", *args, recording, fleet).stderr
            assert "0 new files" in said, said
        assert files(fleet) == before
    with checks.check("two at once come to the same"):
        other = fleet.with_name("fleet-of-two")
        shutil.rmtree(other, ignore_errors=True)
        release = releases[0]
        command = [WHYWAIT, "publish", "--service", "shop", "--release", release.name]
        command += [*map(str, sorted(release.iterdir())[:TWICE]), str(other)]
        two = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        assert [one.wait() for one in two] == [0, 0]
        found = files(other)
        assert found, "nothing was published"
        for name, (data, _) in found.items():
            assert before[name][0] == data, f"{name} differs"
        shutil.rmtree(other)


def check_stored(checks, fleet):
    """What is loaded into ClickHouse twice is there once."""
    with checks.check("loaded into ClickHouse twice, it is there once"):
        clickhouse = engines.ClickHouse(str(fleet))
        for statement in page.statements("clickhouse", "Queries"):
            clickhouse.execute(statement)
        for _ in range(2):
            for statement in page.statements("clickhouse", "Loaded into ClickHouse"):
                clickhouse.execute(statement)
        count = "SELECT count(*), sum(saving_at_most_ns) FROM "
        published = clickhouse.rows(count + "findings")
        stored = clickhouse.rows(count + "stored_findings FINAL")
        assert published == stored and published[0][0] > 0, f"{published} is {stored} there"
        clickhouse.close()


def check_iceberg(checks, fleet):
    """The page's lines put files into an Iceberg table, once."""
    from pyiceberg.catalog.sql import SqlCatalog

    with checks.check("Iceberg tables have the rows, also after a second time"):
        folder = BUILD / "fleet-iceberg"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        places = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        catalog = SqlCatalog("fleet", **places)
        duck = engines.DuckDB(str(fleet))
        for statement in page.statements("duckdb", "Queries"):
            duck.execute(statement)
        for _ in range(2):
            exec(page.python().replace("FLEET", str(fleet)), {"catalog": catalog})
        for name in ("recordings", "findings", "waits", "upstreams"):
            stored = catalog.load_table(f"fleet.{name}").scan().to_arrow().num_rows
            assert duck.rows(f"SELECT count(*) FROM {name}") == [(stored,)], name
        duck.close()


def check_lake(checks, fleet):
    """The page's statements for Spark put files into an Iceberg table, and make few of many."""
    with checks.check("Spark's Iceberg table has the rows, before and after it is compacted"):
        shutil.rmtree(engines.WAREHOUSE, ignore_errors=True)
        spark = engines.Spark(str(fleet))
        for statement in page.statements("spark", "Queries"):
            spark.execute(statement)
        sums = "SELECT count(*), sum(saving_at_most_ns), min(host), max(ts) FROM "
        expected = spark.rows(sums + "findings")
        number = "SELECT count(*) FROM lake.fleet.findings.files"
        *prepare, add, compact = page.statements("spark", "In an Iceberg table")
        for statement in (*prepare, add):
            spark.execute(statement)
        assert spark.rows(sums + "lake.fleet.findings") == expected
        [(before,)] = spark.rows(number)
        try:
            spark.execute(add)
        except Exception as error:  # noqa: BLE001: it is Java's
            assert "already exist" in str(error), error
        else:
            raise AssertionError("the same files were added twice")
        spark.execute(compact)
        assert spark.rows(sums + "lake.fleet.findings") == expected
        [(after,)] = spark.rows(number)
        assert after < before / 10, f"{before} files, {after} after"
        spark.close()


def check_json_lines(checks, releases, fleet):
    with checks.check("JSON Lines have the same rows"):
        recording = sorted(releases[0].iterdir())[0]
        args = ("--service", "shop", "--release", releases[0].name)
        text = whywait("publish", *args, recording, "--format", "jsonl", "-").stdout
        rows = [json.loads(line) for line in text.splitlines()]
        duck = engines.DuckDB(str(fleet))
        for statement in page.statements("duckdb", "Queries"):
            duck.execute(statement)
        for table in TABLES:
            ours = [row for row in rows if row["table"] == table]
            name = rows[0]["recording"]
            [(count, last)] = duck.rows(
                f"SELECT count(*), max(line) FROM {table} WHERE recording = '{name}'"
            )
            assert len(ours) == count, f"{table}: {len(ours)} lines, {count} rows"
            assert not ours or max(row["line"] for row in ours) == last
        duck.close()
