"""The long form: fifty hosts for a day, a thousand simulated host-days, and how times grow."""

import datetime
import shutil
import statistics
import subprocess
import time

import check
import engines
import page

HOURS = 24
HOSTS = (5, 15, 50)
HOST_DAYS = (10, 100, 1000)
# A thousand host-days are ten days of so many hosts.
SIMULATED_HOSTS = 100
FIRST_DAY = datetime.date(2026, 3, 2)
# What a fleet's overview needs: a few rows a host and hour.
METADATA = ("recordings", "findings", "waits", "upstreams")
OF_A_DAY = "What was found on a day"
OF_METADATA = (
    "Which hosts have a finding that the release before did not have",
    OF_A_DAY,
    "Which function's wait grew",
    "Which upstream got slower",
    "Which recordings to trust less",
)
# A query's seconds are those of the best of so many runs.
RUNS = 2


def size(folder):
    """How many files are below, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*.parquet")]
    return len(sizes), sum(sizes)


def day(checks):
    """Fifty hosts for a day, with five and fifteen on the way.

    Gives the folders of recordings, the fleet, and what was measured.
    """
    fleet = check.BUILD / "fleet"
    shutil.rmtree(fleet, ignore_errors=True)
    releases = check.made_up(check.BUILD / "fleet-recordings", HOSTS[-1], HOURS)
    sizes, measured, spent = [], {}, 0.0
    for hosts in HOSTS:
        started = time.monotonic()
        with checks.check(f"{hosts} hosts are published"):
            check.publish(releases, fleet, hosts)
        spent += time.monotonic() - started
        sizes.append((hosts, hosts * HOURS, *size(fleet), spent))
        measured[hosts] = check.check_queries(checks, fleet, RUNS, f"{hosts} hosts, ")
    by_table = {name: size(fleet / name) for name in check.TABLES}
    counts = " UNION ALL ".join(
        f"SELECT count(*) AS n FROM read_parquet('FLEET/{name}/*/*/*.parquet')"
        for name in check.TABLES
    )
    duck = engines.DuckDB(str(fleet))
    [(rows,)] = duck.rows(f"SELECT sum(n)::BIGINT FROM ({counts})")
    duck.close()
    return releases, fleet, (sizes, measured, by_table, rows)


def simulated(checks, fleet):
    """Host-days of the tables that an overview needs, a file each, as compaction leaves them.

    Each simulated host is one of the fifty, under another name, and each day that day, later.
    """
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.dataset
    import pyarrow.parquet as parquet

    folder = check.BUILD / "fleet-simulated"
    shutil.rmtree(folder, ignore_errors=True)
    of_host = {}
    for name in METADATA:
        table = pyarrow.dataset.dataset(fleet / name, format="parquet").to_table()
        for host in compute.unique(table["host"]).to_pylist():
            of_host[name, host] = table.filter(compute.equal(table["host"], host))
    hosts = sorted({host for _, host in of_host})

    def write(n):
        after, host = divmod(n, SIMULATED_HOSTS)
        date = FIRST_DAY + datetime.timedelta(days=after)
        for name in METADATA:
            table = of_host.get((name, hosts[host % len(hosts)]))
            if table is None:
                # That host is healthy: it has no findings.
                continue
            changed = {
                "host": pyarrow.repeat(f"sim-{host:03}", len(table)),
                "recording": compute.binary_join_element_wise(table["recording"], str(n), "-"),
            }
            for column in {"ts", "ended"} & set(table.column_names):
                later = compute.add(table[column], datetime.timedelta(days=after))
                changed[column] = later.cast(table.schema.field(column).type)
            for column, values in changed.items():
                at = table.schema.get_field_index(column)
                table = table.set_column(at, table.schema.field(column), values)
            path = folder / name / f"date={date}" / f"host=sim-{host:03}" / f"00-day-{n}.parquet"
            path.parent.mkdir(parents=True)
            parquet.write_table(table, path, compression="zstd")

    # The other tables have to be there, too.
    for name in set(check.TABLES) - set(METADATA):
        source = next((fleet / name).rglob("*.parquet"))
        target = folder / source.relative_to(fleet)
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    sizes, measured, written = [], {}, 0
    for host_days in HOST_DAYS:
        with checks.check(f"{host_days} host-days are simulated"):
            for n in range(written, host_days):
                write(n)
        written = host_days
        found = [size(folder / name) for name in METADATA]
        sizes.append((host_days, *map(sum, zip(*found, strict=True))))
        label = f"{host_days} host-days, "
        measured[host_days] = check.check_queries(checks, folder, RUNS, label, OF_METADATA)
    return sizes, measured


def real(checks):
    """What is published of the recordings of real servers that are kept for tests.

    Gives for each table what its files take (the median, and the most), and the bytes of a slow
    request, in `requests` and `request_parts` together.
    """
    import pyarrow.parquet as parquet

    unpacked = check.BUILD / "fleet-kept"
    takes, of_request = {name: [] for name in check.TABLES}, []
    for archive in sorted((check.ROOT / "tests/recordings").glob("*.tar.gz")):
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        name = archive.name.removesuffix(".tar.gz")
        unpack = ["tar", "-xz", "--no-same-owner", "-f", archive, "-C", unpacked]
        subprocess.run(unpack, check=True)
        with checks.check(f"{name} is published"):
            check.whywait("publish", unpacked / name, unpacked / "fleet")
        published = {name: list((unpacked / "fleet" / name).rglob("*")) for name in check.TABLES}
        published = {n: [p for p in paths if p.is_file()] for n, paths in published.items()}
        for name, paths in published.items():
            takes[name].append(sum(path.stat().st_size for path in paths))
        slow = sum(
            parquet.read_table(path, columns=["request"])["request"].drop_null().length()
            for path in published["requests"]
        )
        # With fewer the files' own bytes are most of it.
        if slow >= 100:
            of_request.append((takes["requests"][-1] + takes["request_parts"][-1]) / slow)
    shutil.rmtree(unpacked)
    summed = {name: (statistics.median(all_), max(all_)) for name, all_ in takes.items()}
    number = len(takes["recordings"])
    return number, summed, (statistics.median(of_request), max(of_request))
