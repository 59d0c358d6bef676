"""Holds `whywait publish` and the queries of docs/fleet.md against a made-up fleet.

usage: check.py [--quick]
"""

import argparse
import contextlib
import io
import json
import logging
import math
import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

import engines
import page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build"
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
        try:
            yield
        except Exception as error:  # noqa: BLE001: whatever it is, the next check runs
            detail = io.StringIO()
            traceback.print_exc(limit=-2, file=detail)
            self.failures.append(f"{name}: {error}")
            print(f"FAILED {name}: {error}\n{detail.getvalue()}", flush=True)
        else:
            self.passed += 1
            print(f"ok: {name}", flush=True)

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
    example = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "whywait-publish"]
    example += ["--example", "make_fleet", "--", str(folder), str(hosts), str(hours)]
    subprocess.run(example, cwd=ROOT, check=True)
    return sorted(folder.iterdir())


def publish(releases, fleet):
    for release in releases:
        whywait("publish", "--new", "--service", "shop", "--release", release.name, release, fleet)


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


def check_queries(checks, fleet):
    """Each question of the page, on each engine. Gives the seconds of each by engine."""
    answers, seconds = {}, {}
    for engine in engines.ENGINES:
        with checks.check(f"{engine.name}: the tables are known"):
            started = time.monotonic()
            running = engine(str(fleet))
            for statement in page.statements(engine.name, "Queries"):
                running.execute(statement)
            seconds[engine.name, "start"] = time.monotonic() - started
        for heading, sql in page.questions().items():
            with checks.check(f"{engine.name}: {heading}"):
                started = time.monotonic()
                rows = running.rows(sql)
                seconds[engine.name, heading] = time.monotonic() - started
                assert rows, "no rows"
                first = answers.setdefault(heading, rows)
                assert same_rows(first, rows), f"{first[:3]} … is {rows[:3]} … here"
                assert SHOWS.get(heading, "") in str(rows), f"no {SHOWS[heading]} in {rows}"
        running.close()
    return answers, seconds


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


def check_totals(checks, releases, fleet, every):
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
    for recording in recordings[::every]:
        with checks.check(f"{recording.name}: the figures are the report's"):
            host, hour = recording.name.rsplit("-", 1)
            said, waits = report(recording)
            requests, coverage = said["requests"], said["coverage"]
            late = (requests.get("open") or {"late": 0})["late"]
            samples = duck.rows(
                f"SELECT sum(periods) FROM read_parquet('{recording}/seg-*/samples.parquet')"
            )
            expected = {
                "requests": [(requests["count"] + late,)],
                "parts": sorted(parts(requests["time"])),
                "findings": [
                    (finding["code"], place, finding["saving"]["at_most_ns"])
                    for place, finding in enumerate(said["findings"], 1)
                ],
                "waits": [
                    tuple(sum(row[name] for row in waits) for name in names)
                    for names in [("total_ns", "count", "critical_ns")]
                ],
                "calls": sorted((c["peer"], c["calls"], c["total_ns"]) for c in said["calls"]),
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
                "samples": samples,
            }
            for name, rows in expected.items():
                found = sorted(published[name].get((host, int(hour)), []))
                assert found == sorted(rows), f"{name}: published {found}, the report has {rows}"
    duck.close()


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
        command += [str(release), str(other)]
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


def check_s3(checks, releases, fleet):
    """The same files in a bucket, and a query that reads them there."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    args = ("publish", "--service", "shop", "--release", releases[0].name)
    recording = sorted(releases[0].iterdir())[0]
    said = subprocess.run([WHYWAIT, *args, recording, "s3://"], capture_output=True, text=True)
    if "built without s3" in said.stderr:
        print("left out: S3, which this whywait was built without", flush=True)
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "made-up", "AWS_SECRET_ACCESS_KEY": "made-up"}
    environment = {**os.environ, **keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint}
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="made-up",
        aws_secret_access_key="made-up",
    )

    def objects():
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="fleet", Prefix="w/")
        keys = [found["Key"] for listed in pages for found in listed.get("Contents", [])]
        return {
            key.removeprefix("w/"): client.get_object(Bucket="fleet", Key=key)["Body"].read()
            for key in keys
        }

    with checks.check("a bucket that is not there is one line"):
        said = whywait(*args, recording, "s3://fleet/w", code=1, env=environment).stderr
        assert "no such bucket" in said and said.count("\n") == 1, said
    with checks.check("S3 gets the files that a folder gets"):
        client.create_bucket(Bucket="fleet")
        for release in releases:
            labels = ("publish", "--service", "shop", "--release", release.name)
            whywait(*labels, release, "s3://fleet/w", env=environment)
        expected = {name: data for name, (data, _) in files(fleet).items()}
        assert objects() == expected
    with checks.check("S3: what is there is not published again"):
        said = whywait(*args, "--new", recording, "s3://fleet/w", env=environment).stderr
        assert "1 were there already" in said, said
    with checks.check("ClickHouse reads the bucket in place"):
        clickhouse = engines.ClickHouse(str(fleet))
        there = f"s3('{endpoint}/fleet/w/recordings/**/*.parquet', 'made-up', 'made-up')"
        here = "file('FLEET/recordings/**/*.parquet')"
        query = "SELECT recording, requests, p99_ns FROM {} ORDER BY recording"
        assert clickhouse.rows(query.format(there)) == clickhouse.rows(query.format(here))
        clickhouse.close()
    server.stop()


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


def quick():
    checks = Checks()
    fleet = BUILD / "fleet"
    shutil.rmtree(fleet, ignore_errors=True)
    releases = made_up(BUILD / "fleet-recordings", 4, 4)
    with checks.check("a fleet is published"):
        publish(releases, fleet)
    check_queries(checks, fleet)
    check_totals(checks, releases, fleet, every=1)
    check_again(checks, releases, fleet)
    check_json_lines(checks, releases, fleet)
    check_stored(checks, fleet)
    check_iceberg(checks, fleet)
    check_s3(checks, releases, fleet)
    return checks.sum_up()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        return quick()
    import growth

    return growth.main()


if __name__ == "__main__":
    sys.exit(main())
