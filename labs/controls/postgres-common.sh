# For postgres.sh and postgres-build.sh: where PostgreSQL's programs are, and running them as
# anybody but root.
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)

# PostgreSQL refuses to run as root. In a user namespace, root's files are those of whomever root is
# called there; as the user that the package made, it could not reach the lab's private folders.
not_root=
[ "$(id -u)" -ne 0 ] ||
  not_root="unshare --user --map-user=$(id -u nobody) --map-group=$(id -g nobody)"
as_postgres() { $not_root "$@"; }
