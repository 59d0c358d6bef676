"""The engines that the queries of docs/fleet.md run on, each behind the same three functions.

An engine is made for a published fleet, runs the page's statements for it, and gives a query's rows
as tuples of None, bool, int, float and str.
"""

import datetime
import decimal
import json
import math
import os
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / ".build"
# Iceberg for Spark; the quick form goes without.
ICEBERG = BUILD / "iceberg-spark-runtime.jar"
WAREHOUSE = BUILD / "fleet-lake"
LAKE = {
    "spark.jars": str(ICEBERG),
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": str(WAREHOUSE),
}


def plain(value):
    """A value as every engine could have it."""
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


class DuckDB:
    name = "duckdb"

    def __init__(self, fleet):
        import duckdb

        self.fleet = fleet
        self.connection = duckdb.connect()
        self.connection.execute("SET threads = 2; SET TimeZone = 'UTC'")

    def execute(self, statement):
        self.connection.execute(statement.replace("FLEET", self.fleet))

    def rows(self, query):
        found = self.connection.sql(query.replace("FLEET", self.fleet)).fetchall()
        return [tuple(map(plain, row)) for row in found]

    def close(self):
        self.connection.close()


class ClickHouse:
    name = "clickhouse"

    def __init__(self, fleet):
        from chdb.session import Session

        self.fleet = fleet
        self.session = Session()

    def execute(self, statement):
        self.session.query(statement.replace("FLEET", self.fleet))

    def rows(self, query):
        query = query.strip().rstrip(";").replace("FLEET", self.fleet)
        text = self.session.query(query, "JSONCompactEachRow").bytes().decode()
        return [tuple(map(plain, json.loads(line))) for line in text.splitlines() if line]

    def close(self):
        self.session.close()


class Spark:
    name = "spark"

    def __init__(self, fleet):
        from pyspark.sql import SparkSession

        self.fleet = fleet
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            SparkSession.builder.master("local[2]")
            .appName("fleet")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "2g")
        )
        if ICEBERG.exists():
            for key, value in LAKE.items():
                builder = builder.config(key, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def execute(self, statement):
        self.session.sql(statement.strip().rstrip(";").replace("FLEET", self.fleet)).collect()

    def rows(self, query):
        found = self.session.sql(query.strip().rstrip(";").replace("FLEET", self.fleet)).collect()
        return [tuple(map(plain, row)) for row in found]

    def close(self):
        for row in self.session.sql("SHOW VIEWS").collect():
            self.session.catalog.dropTempView(row["viewName"])


ENGINES = (DuckDB, ClickHouse, Spark)
