"""An S3 server of the tests' own, on loopback, which can be told to fail: moto, behind a gate that sees each request.

`Gate.rules` are asked in order; the first that fits a request and has not been used up decides what becomes of it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote
from urllib.request import Request, urlopen

Answer = Iterable[bytes]
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{0}</Code><Message>by order</Message></Error>'
_FAILURES = {"500": ("500 Internal Server Error", "InternalError"), "503": ("503 Slow Down", "SlowDown")}


class Seen(NamedTuple):
    """A request that has come in."""

    method: str
    path: str  # /bucket/key
    query: str
    headers: dict[str, str]


@dataclass
class Rule:
    """What becomes of requests: "500", "503", "lost" (it is done, and answered with 500), "hangs" or "slow"."""

    action: str
    path: str = ""  # a pattern that is searched for
    method: str = "."
    times: int = 1_000_000
    query: str = ""
    used: int = 0
    every: int = 1  # how many that fit make one that it decides about
    fitting: int = 0
    seconds: float = 0.02  # of one that is slow

    def fits(self, seen: Seen) -> bool:
        """Whether it decides about a request."""
        asked = ((self.path, seen.path), (self.method, seen.method), (self.query, seen.query))
        if self.used >= self.times or not all(re.search(pattern, found) for pattern, found in asked):
            return False
        self.fitting += 1
        return self.fitting % self.every == 0


@dataclass
class Gate:
    """Lets requests through to the store, or not."""

    store: Callable[[dict[str, Any], Any], Answer]
    rules: list[Rule] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)  # whatever hangs, ends
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start: Any) -> Answer:
        """Answer a request."""
        headers = {name[5:].replace("_", "-").lower(): v for name, v in environ.items() if name.startswith("HTTP_")}
        seen = Seen(environ["REQUEST_METHOD"], unquote(environ["PATH_INFO"]), environ.get("QUERY_STRING", ""), headers)
        with self._lock:
            self.seen.append(seen)
            rule = next((rule for rule in self.rules if rule.fits(seen)), None)
            if rule is not None:
                rule.used += 1
        if rule is None:
            return self.store(environ, start)
        if rule.action == "slow":
            self._ended.wait(rule.seconds)
            return self.store(environ, start)
        if rule.action == "hangs":
            self._ended.wait()
            return self._failed("500", start)
        if rule.action == "lost":
            list(self.store(environ, lambda *_: None))
            return self._failed("500", start)
        return self._failed(rule.action, start)

    @contextmanager
    def failing(self, *rules: Rule) -> Iterator[list[Rule]]:
        """Fail meanwhile."""
        self.rules = list(rules)
        try:
            yield self.rules
        finally:
            self.rules = []

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        with urlopen(Request(f"{self.url}/{name}", method="PUT")) as answer:
            assert answer.status == 200

    def _failed(self, action: str, start: Any) -> Answer:
        status, code = _FAILURES[action]
        start(status, [("Content-Type", "application/xml")])
        return [_ERROR.format(code).encode()]


@contextmanager
def serving() -> Iterator[Gate]:
    """Run a server; the environment of this process and of those it starts leads there."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    gate = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True)
    gate.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    wanted = {
        "AWS_ENDPOINT_URL": gate.url,
        "AWS_ACCESS_KEY_ID": "key-of-nobody",
        "AWS_SECRET_ACCESS_KEY": "secret-of-nobody",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield gate
    finally:
        gate._ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
