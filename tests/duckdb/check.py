"""Runs the SQL blocks of a Markdown file against a recording: each must succeed and return rows.

Also holds the file's account of the tables against the recording: a column that is not described,
described with another type, or described but not there is a failure.

usage: check.py FILE.md RECORDING
"""

import pathlib
import re
import sys

import duckdb


def tables(recording):
    """The tables that the recording has: a file each."""
    return sorted(path.stem for path in pathlib.Path(recording, "seg-000001").glob("*.parquet"))


def sql_blocks(text):
    """Yields (heading, sql): the heading is the nearest one above the block."""
    heading = ""
    for match in re.finditer(
        r"^#+ (?P<heading>[^\n]*)$|^```sql\n(?P<sql>.*?)^```$", text, re.M | re.S
    ):
        if match["sql"] is None:
            heading = match["heading"]
        else:
            yield heading, match["sql"]


def described_columns(text, table):
    """The columns that the section of a table describes: {name: (type, nullable)}."""
    section = re.search(rf"^### `{table}`.*?(?=^##|\Z)", text, re.M | re.S)
    rows = re.findall(
        r"^\| (`.+?`(?:, `.+?`)*) \| (\w+)(, or NULL)? \|", section[0] if section else "", re.M
    )
    return {
        name: (kind, bool(null))
        for names, kind, null in rows
        for name in re.findall(r"`(\w+)`", names)
    }


def actual_columns(connection, recording, table):
    path = f"{recording}/seg-000001/{table}.parquet"
    kinds = {
        name: kind
        for name, kind, *_ in connection.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    }
    schema = connection.sql(
        f"SELECT name, repetition_type FROM parquet_schema('{path}') OFFSET 1"
    ).fetchall()
    return {name: (kinds[name], repetition == "OPTIONAL") for name, repetition in schema}


def main(document, recording):
    with open(document, encoding="utf-8") as file:
        text = file.read()
    connection = duckdb.connect()
    passed, failures = 0, []

    for table in tables(recording):
        described = described_columns(text, table)
        actual = actual_columns(connection, recording, table)
        if described == actual:
            passed += 1
            continue
        for name in sorted(described.keys() | actual.keys()):
            if described.get(name) != actual.get(name):
                failures.append(
                    f"{table}.{name}: described as {described.get(name)}, is {actual.get(name)}"
                )

    queries = list(sql_blocks(text))
    if len(queries) != text.count("```sql"):
        failures.append("not every block of SQL was found")
    for heading, sql in queries:
        try:
            rows = connection.sql(sql.replace("REC/", f"{recording}/")).fetchall()
        except duckdb.Error as error:
            failures.append(f"{heading}: {error}")
            continue
        if not rows:
            failures.append(f"{heading}: returned no rows")
            continue
        passed += 1
        print(f"ok: {heading} ({len(rows)} rows)")

    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
