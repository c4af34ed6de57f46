"""A real HTTP server on the loopback interface, with good and bad manners."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Answers each path with bytes, or lets a function of the handler answer."""

    daemon_threads = True
    block_on_close = False  # a handler that never ends must not keep the test

    def __init__(self, routes):
        self.routes = routes
        self.requests = []
        self.over = threading.Event()  # for handlers that wait
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """The client went away, as it should."""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        answer = self.server.routes.get(self.path)
        if answer is None:
            self.send_error(404)
        elif callable(answer):
            answer(self)
        else:
            start(self, len(answer))
            self.wfile.write(answer)

    def log_message(self, format, *args):
        """Quiet."""


def start(handler, length=None, status=200, **headers):
    """Send the head of an answer."""
    handler.send_response(status)
    if length is not None:
        handler.send_header("Content-Length", str(length))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


@contextmanager
def serve(routes) -> Iterator[Server]:
    """Run a server as long as the block lasts."""
    with Server(routes) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
