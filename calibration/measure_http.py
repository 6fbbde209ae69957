"""What HTTP adds to a request on this host: round trips to an idle server of the standard library, over loopback.

A floor: a real server parses JSON, checks it, crosses a process border. It replaces the constant of a profile only
where nothing better was measured, and says so in the row's source.
"""

from __future__ import annotations

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_BODY = b'{"model": "m", "prompt": [1, 2, 3], "max_tokens": 1, "stream": true}'
_CHUNK = b'data: {"choices": [{"index": 0, "text": ""}]}\n\n'
_WARM = 3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without this Nagle's algorithm and delayed acknowledgements add 40 ms that no engine has.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(_CHUNK)))
        self.end_headers()
        self.wfile.write(_CHUNK)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def round_trips_ns(repetitions: int) -> list[int]:
    """Return the durations of `repetitions` requests on one kept connection, in ns."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        times = []
        for _ in range(repetitions + _WARM):
            began = time.perf_counter_ns()
            connection.request("POST", "/v1/completions", _BODY, {"Content-Type": "application/json"})
            connection.getresponse().read()
            times.append(time.perf_counter_ns() - began)
        return times[_WARM:]
    finally:
        connection.close()
        server.shutdown()
        thread.join()
        server.server_close()
