"""Holds `whywait publish … s3://` against an S3 server of the test's own (moto)."""

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import threading

import check
import engines

BUCKET, PREFIX = "fleet", "w"
# Of each release so many go there: a request a file.
RECORDINGS = 24
PLACE = f"s3://{BUCKET}/{PREFIX}"
# What a host may do, as docs/fleet.md says it.
POLICY = """{
  "Version": "2012-10-17",
  "Statement": [
    {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"],
     "Resource": "arn:aws:s3:::fleet/*"},
    {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::fleet"}
  ]
}"""


class Server:
    """A server, and a client to look into it with."""

    def __init__(self):
        import boto3
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self.server.start()
        self.host, self.port = self.server.get_host_and_port()
        self.endpoint = f"http://{self.host}:{self.port}"
        self.client = lambda service: boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="made-up",
            aws_secret_access_key="made-up",
        )
        self.s3 = self.client("s3")

    def environment(self, endpoint=None, key="made-up", secret="made-up"):
        """What whywait finds in its environment: nothing of this machine's own."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        return kept | {
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def objects(self):
        """Each object below the prefix, with its bytes and when it was written."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX)
        found = {}
        for listed in (one for page in pages for one in page.get("Contents", [])):
            name = listed["Key"].removeprefix(f"{PREFIX}/")
            body = self.s3.get_object(Bucket=BUCKET, Key=listed["Key"])["Body"].read()
            found[name] = (body, listed["LastModified"])
        return found

    def empty(self):
        for name in self.objects():
            self.s3.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")

    @contextlib.contextmanager
    def users(self):
        """Only users of its own may do anything, each what its policy says."""
        from moto import settings

        iam = self.client("iam")
        iam.create_user(UserName="host")
        iam.put_user_policy(UserName="host", PolicyName="publish", PolicyDocument=POLICY)
        key = iam.create_access_key(UserName="host")["AccessKey"]
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        try:
            yield key["AccessKeyId"], key["SecretAccessKey"]
        finally:
            settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")

    def stop(self):
        self.server.stop()


@contextlib.contextmanager
def relay(server, after, hold=False):
    """A way to the server that takes `after` bytes. Then it breaks, or falls silent.

    Yields its URL, and what is set when it is at its end.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    left, over, sockets = [after], threading.Event(), [listener]

    def pump(source, sink, counts):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                if counts:
                    data = data[: max(left[0], 0)]
                    left[0] -= len(data)
                sink.sendall(data)
                if left[0] <= 0:
                    over.set()
                    if hold:
                        return
                    break
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                sockets.append(client)
                if over.is_set():
                    client.close()
                    continue
                there = socket.create_connection((server.host, server.port))
                sockets.append(there)
                for args in ((client, there, True), (there, client, False)):
                    threading.Thread(target=pump, args=args, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", over
    finally:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def refused_in_one_line(text, *args, **options):
    said = check.whywait(*args, code=1, **options).stderr
    assert text in said and said.count("\n") == 1, said


def check_refusals(checks, server, args):
    with checks.check("S3: a bucket that is not there is one line"):
        environment = server.environment()
        refused_in_one_line("no such bucket", *args, PLACE, env=environment)
    with checks.check("S3: a service that does not answer is one line"):
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        environment = server.environment(f"http://127.0.0.1:{port}")
        refused_in_one_line("the request failed", *args, PLACE, env=environment)
    with checks.check("S3: no credentials is one line"):
        environment = server.environment()
        del environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        # Where a machine in a cloud says which role it has; nobody is there.
        environment["AWS_METADATA_ENDPOINT"] = f"http://127.0.0.1:{port}"
        refused_in_one_line("without AWS_ACCESS_KEY_ID", *args, PLACE, env=environment)


def check_users(checks, server, args):
    with checks.check("S3: wrong credentials are one line, and the page's rights are enough"):
        with server.users() as (key, secret):
            wrong = server.environment(key=key, secret="wrong")
            refused_in_one_line("not allowed", *args, PLACE, env=wrong)
            environment = server.environment(key=key, secret=secret)
            check.whywait(*args, PLACE, env=environment)
            said = check.whywait(*args, "--new", PLACE, env=environment).stderr
        assert "1 were there already" in said, said
    server.empty()


def check_interrupted(checks, server, args):
    """Whatever breaks in the middle, each object is whole, and the next one completes them."""
    folder = check.BUILD / "fleet-of-one"
    shutil.rmtree(folder, ignore_errors=True)
    check.whywait(*args, folder)
    expected = {name: data for name, (data, _) in check.files(folder).items()}
    shutil.rmtree(folder)
    half = sum(map(len, expected.values())) // 2

    def completes():
        found = server.objects()
        assert 0 < len(found) < len(expected), f"{len(found)} objects: not in the middle"
        for name, (body, _) in found.items():
            assert body == expected[name], f"{name} is not whole"
        check.whywait(*args, "--new", PLACE, env=server.environment())
        assert {name: body for name, (body, _) in server.objects().items()} == expected

    with checks.check("S3: a connection that breaks leaves whole objects, and is one line"):
        server.empty()
        with relay(server, half) as (endpoint, _):
            environment = server.environment(endpoint)
            refused_in_one_line("the request failed", *args, PLACE, env=environment)
        completes()
    with checks.check("S3: a publisher that is killed leaves whole objects"):
        server.empty()
        with relay(server, half, hold=True) as (endpoint, silent):
            command = [check.WHYWAIT, *map(str, args), PLACE]
            publisher = subprocess.Popen(
                command, env=server.environment(endpoint), stderr=subprocess.DEVNULL
            )
            assert silent.wait(60), "it did not come to the middle"
            publisher.kill()
            publisher.wait()
        completes()


def check_s3(checks, releases):
    """The same files in a bucket as in a folder, and a query that reads them there."""
    # A day of a host, or two, of each release.
    some = {release.name: sorted(release.iterdir())[:RECORDINGS] for release in releases}
    labels = ("publish", "--service", "shop", "--release")
    recording = some[releases[0].name][0]
    args = (*labels, releases[0].name, recording)
    server = Server()
    check_refusals(checks, server, args)
    server.s3.create_bucket(Bucket=BUCKET)
    check_users(checks, server, args)
    check_interrupted(checks, server, args)
    server.empty()
    folder = check.BUILD / "fleet-as-in-s3"
    shutil.rmtree(folder, ignore_errors=True)
    with checks.check("S3 gets the files that a folder gets"):
        for release, recordings in some.items():
            check.whywait(*labels, release, *recordings, folder)
            check.whywait(*labels, release, *recordings, PLACE, env=server.environment())
        expected = {name: data for name, (data, _) in check.files(folder).items()}
        before = server.objects()
        assert {name: data for name, (data, _) in before.items()} == expected
    with checks.check("S3: publishing again changes nothing"):
        said = check.whywait(*args, PLACE, env=server.environment()).stderr
        assert "(0 new files" in said, said
        said = check.whywait(*args, "--new", PLACE, env=server.environment()).stderr
        assert "1 were there already" in said, said
        assert server.objects() == before
    with checks.check("ClickHouse reads the bucket in place"):
        clickhouse = engines.ClickHouse(str(folder))
        url = f"{server.endpoint}/{BUCKET}/{PREFIX}"
        there = f"s3('{url}/recordings/**/*.parquet', 'made-up', 'made-up')"
        here = "file('FLEET/recordings/**/*.parquet')"
        query = "SELECT recording, requests, p99_ns FROM {} ORDER BY recording"
        assert clickhouse.rows(query.format(there)) == clickhouse.rows(query.format(here))
        clickhouse.close()
    server.stop()
