"""The harness of `make bench`: see bench/README.md."""
