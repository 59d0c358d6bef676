"""Holds `whywait publish` and the queries of docs/fleet.md against a made-up fleet.

usage: main.py [--quick]
"""

import argparse
import shutil
import sys

import bucket
import check
import figures
import growth


def all_of_a_fleet(checks, releases, fleet):
    """Everything that is checked of a fleet that is published, but for the queries."""
    check.check_totals(checks, releases, fleet)
    check.check_again(checks, releases, fleet)
    check.check_json_lines(checks, releases, fleet)
    check.check_stored(checks, fleet)
    check.check_iceberg(checks, fleet)
    bucket.check_s3(checks, releases)


def quick():
    checks = check.Checks()
    fleet = check.BUILD / "fleet"
    shutil.rmtree(fleet, ignore_errors=True)
    releases = check.made_up(check.BUILD / "fleet-recordings", 4, 4)
    with checks.check("a fleet is published"):
        check.publish(releases, fleet)
    check.check_queries(checks, fleet)
    all_of_a_fleet(checks, releases, fleet)
    return checks.sum_up()


def whole():
    checks = check.Checks()
    releases, fleet, of_day = growth.day(checks)
    all_of_a_fleet(checks, releases, fleet)
    check.check_lake(checks, fleet)
    of_simulated = growth.simulated(checks, fleet)
    of_real = growth.real(checks)
    if not checks.failures:
        figures.write(of_day, of_simulated, of_real)
    return checks.sum_up()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    return quick() if parser.parse_args().quick else whole()


if __name__ == "__main__":
    sys.exit(main())
