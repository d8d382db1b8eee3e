"""The browser fixture: it shows pages of this machine, reaches no other host, and collects what a page complains of."""

from __future__ import annotations

import http.server
import threading

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture
def local_server():
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(b"<title>served here</title>")

        def log_message(self, format, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_console_errors_and_exceptions_are_collected(tmp_path, open_page):
    path = tmp_path / "page.html"
    path.write_text("<link rel=icon href='data:,'><script>console.error('first'); throw new Error('second')</script>")
    _, errors = open_page(path)
    assert errors == ["first", "second"]


def test_this_machine_is_reached_and_no_other(local_server, open_page):
    page, errors = open_page(local_server)
    assert page.title() == "served here"
    assert errors == []
    reached = page.evaluate("fetch('http://example.com/').then(() => true, () => false)")
    assert reached is False
    assert "ERR_NAME_NOT_RESOLVED" in errors[0]
