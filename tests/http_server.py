"""An HTTP server in threads of the test process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_LOOK_S = 0.02
"""How often the server looks whether it ends: every test waits for that."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests on a free port during the block; yield the URL, without a path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serve(server)
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def serve(server: ThreadingHTTPServer) -> None:
    """Answer requests in a thread, until `shutdown`."""
    threading.Thread(target=server.serve_forever, args=(_LOOK_S,), daemon=True).start()
