"""A small web server for one person at this machine: it serves the page and answers its questions.

It listens on 127.0.0.1 only. The address holds a random token; a request without it finds nothing.
Host and Origin must be this server's own, so that no page from elsewhere can speak with it, and a
request may not be large.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import Lock
from typing import Any

from flambeau.cli.usage import UsageError

LARGEST, PATIENCE = 16_384, 20.0  # bytes of a request; seconds that one may take to arrive
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
                               "connect-src 'self'; img-src data:; base-uri 'none'; "
                               "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """`questions` is name -> function from one table to another; `address` is where it is found."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # where it would share the port with others
    allow_reuse_port = False

    def __init__(self, port: int, questions: Mapping[str, Callable[[dict], dict]]) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.questions, self.token = dict(questions), secrets.token_urlsafe(18)
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}
        self.files = page_files()
        self.one_at_a_time = Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle is nothing to tell of."""


def page_files() -> dict[str, tuple[str, bytes]]:
    """name -> kind and contents of every file of the page."""
    found = {}
    for entry in resources.files(__package__).joinpath("page").iterdir():
        kind = KINDS.get(entry.name[entry.name.rfind("."):])
        if kind:
            found[entry.name] = (kind, entry.read_bytes())
    return found


class Answer(BaseHTTPRequestHandler):
    """One connection of the browser."""

    server: Server
    server_version, sys_version = "flambeau", ""
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def do_GET(self) -> None:
        place = self._place()
        if place is None:
            return
        found = self.server.files.get(place or "index.html")
        if found is None:
            self._refuse(404, "there is nothing here")
        else:
            self._send(200, f"{found[0]}; charset=utf-8", found[1])

    def do_POST(self) -> None:
        place = self._place()
        if place is None:
            return
        question = self.server.questions.get(place)
        if question is None:
            self._refuse(404, "there is nothing here")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(415, "questions are asked in JSON")
        else:
            asked = self._asked()
            if asked is not None:
                self._tell(*self._answered(question, asked))

    def _place(self) -> str | None:
        """What is asked for behind the token; None once a request has been turned away."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host not in self.server.hosts or origin not in (None, f"http://{host}"):
            self._refuse(403, "this server answers its own page only")
            return None
        token, slash, place = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not slash or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(404, "there is nothing here")
            return None
        return place

    def _asked(self) -> dict | None:
        """The question; None once it has been turned away."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(411, "the length of the question is missing")
        elif int(length[:9]) > LARGEST or len(length) > 9:
            self._refuse(413, f"a question has at most {LARGEST:,} bytes")
        else:
            try:
                asked = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                asked = None
            if isinstance(asked, dict):
                return asked
            self._refuse(400, "a question is one JSON object")
        return None

    def _answered(self, question: Callable[[dict], dict], asked: dict) -> tuple[int, dict]:
        try:
            with self.server.one_at_a_time:
                return 200, question(asked)
        except UsageError as mistake:
            return 200, {"error": str(mistake)}
        except Exception as failure:  # a fault of ours: told, and the next question is answered
            return 500, {"error": f"flambeau failed here, which is a fault of its own: "
                                  f"{type(failure).__name__}: {failure}"}

    def _refuse(self, status: int, why: str) -> None:
        """Turn a request away; what else it may have sent is not read."""
        self.close_connection = True
        self._tell(status, {"error": why})

    def _tell(self, status: int, answer: dict) -> None:
        body = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
        self._send(status, "application/json", body)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in ALWAYS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to whoever started the command."""
