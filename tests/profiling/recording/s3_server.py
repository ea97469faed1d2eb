"""An S3 server on loopback for tests, and the environment in which its clients find it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest


def _put_in_turn(environment: pytest.MonkeyPatch) -> None:
    """Let a put with a condition be one act, as it is on S3: moto looks for the object in one step
    and writes it in another, so of two writers at once both may win.
    """
    from moto.s3.responses import S3Response

    put, turn = S3Response.put_object, threading.Lock()

    def put_alone(response: S3Response) -> Any:
        with turn:
            return put(response)

    environment.setattr(S3Response, "put_object", put_alone)


@contextmanager
def s3_server(bucket: str) -> Iterator[None]:
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    # What an earlier one of this process held is there still: a worker may come back to a file of
    # tests.
    urlopen(Request(f"http://127.0.0.1:{port}/moto-api/reset", method="POST")).close()
    with pytest.MonkeyPatch.context() as environment:
        _put_in_turn(environment)
        settings = {
            "ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "ACCESS_KEY_ID": "test",
            "SECRET_ACCESS_KEY": "test",
        }
        settings |= {"DEFAULT_REGION": "us-east-1", "EC2_METADATA_DISABLED": "true"}
        for name, value in settings.items():
            environment.setenv(f"AWS_{name}", value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        fsspec.filesystem("s3").mkdir(bucket)
        try:
            yield
        finally:
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            server.stop()
