"""Access logs of several servers, and hostile ones."""

import io
import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sso.imports.access_logs import MAX_LINE, Line, LoggedRequest, lines, parsed
from tests.support.each import each

PATH = "/realms/main/protocol/openid-connect/auth"
QUERY = "client_id=books&scope=openid%20email"
EXPECTED = LoggedRequest("GET", PATH, QUERY, 302)
TARGET = f"{PATH}?{QUERY}"
COMMON = f'192.0.2.1 - - [29/Nov/2026:19:00:00 +0000] "GET {TARGET} HTTP/1.1" 302 0'

REAL: dict[str, str] = {
    "common": COMMON,
    "combined": f'{COMMON} "https://books.example/a \\"b\\"" "Mozilla/5.0 (X11)"',
    "with the host first": f"login.example.com {COMMON}",
    "Traefik, common": f'{COMMON} "-" "-" 1 "keycloak@docker" "http://10.0.0.2:8080" 5ms',
    "HTTP/2": COMMON.replace("HTTP/1.1", "HTTP/2.0"),
    "absolute": COMMON.replace(TARGET, f"https://login.example.com{TARGET}"),
    "Caddy": json.dumps({
        "level": "info", "logger": "http.log.access",
        "request": {"remote_ip": "192.0.2.1", "proto": "HTTP/2.0", "method": "GET",
                    "host": "login.example.com", "uri": TARGET, "headers": {}},
        "duration": 0.01, "size": 0, "status": 302,
    }),
    "Traefik": json.dumps({
        "ClientHost": "192.0.2.1", "DownstreamStatus": 302, "OriginStatus": 302,
        "RequestHost": "login.example.com", "RequestMethod": "GET", "RequestPath": TARGET,
        "RequestProtocol": "HTTP/2.0", "level": "info", "msg": "",
    }),
    "nginx, of its variables": json.dumps({
        "remote_addr": "192.0.2.1", "request_method": "GET", "request_uri": TARGET, "status": "302",
    }),
    "nginx, uri and args": json.dumps({
        "method": "GET", "uri": PATH, "args": QUERY, "status": 302,
    }),
    "nginx, the request line": json.dumps({"request": f"GET {TARGET} HTTP/1.1", "status": "302"}),
    "Quarkus, in JSON": json.dumps({"loggerName": "io.quarkus.http.access-log", "message": COMMON}),
    "of a container": json.dumps({"log": f"{COMMON}\n", "stream": "stdout"}),
}  # fmt: skip


@each("line", REAL.values())
def test_each_format(line: str) -> None:
    assert parsed(line) == EXPECTED


@each(
    "line",
    [
        "", "   ", "hello", "{", "{}", "[]", "null", '{"status": 302}', '{"request": 5}',
        '{"request": {"method": "GET"}}', '{"method": "get", "uri": "/"}',
        '{"method": "GET", "uri": 5}', '{"method": "GET", "uri": "javascript:x"}',
        '- - - [x] "-" 400 0', '"GET / HTTP/1.1" 30', '"GET / HTTP/1.1" 3024', '"GET /" "x"',
        "[" * 60_000, '{"a":' * 30_000, '"' * 60_000, '"\\' * 30_000, '"GET / ' * 9_000,
    ],
)  # fmt: skip
def test_what_is_no_request(line: str) -> None:
    assert parsed(line) is None


def test_paths_are_decoded_and_queries_are_not() -> None:
    request = parsed('"GET /realms/My%20Realm/x%0a%ff?a=%20#z HTTP/1.1" 200')
    assert request == LoggedRequest("GET", "/realms/My Realm/x\n\ufffd", "a=%20", 200)


def test_long_lines_are_passed_over_in_parts() -> None:
    class Counting(io.BytesIO):
        most = 0

        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(-1 if size is None else size)
            self.most = max(self.most, len(line))
            return line

    line = COMMON.encode()
    edge = line + b" " * (MAX_LINE - len(line) - 1) + b"\n"
    file = Counting(b"\n".join([line, b"x" * 5 * MAX_LINE, line, b""]) + edge + b" " + edge + line)
    assert [*lines(file)] == [
        Line(1, EXPECTED), Line(2, None, is_too_long=True), Line(3, EXPECTED), Line(4, EXPECTED),
        Line(5, None, is_too_long=True), Line(6, EXPECTED),
    ]  # fmt: skip
    assert file.most <= MAX_LINE + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
MEMBERS = st.dictionaries(
    st.sampled_from(["request", "method", "uri", "status", "message", "args", "RequestPath",
                     "RequestMethod", "DownstreamStatus", "request_uri", "log"]),
    JSON | st.sampled_from(["GET", "/a?b", COMMON, 200, "200"]),
    max_size=5,
)  # fmt: skip


@given(MEMBERS.map(json.dumps) | st.text(max_size=200) | st.binary(max_size=200))
def test_any_line_is_read_or_passed_over(line: Any) -> None:
    raw = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
    for number, request, is_too_long in lines(io.BytesIO(raw)):
        assert number >= 1
        assert not is_too_long
        if request:
            assert request.method.isupper()
            assert 0 <= request.status <= 999
            assert "?" not in request.path or "%3F" in raw.decode("latin-1").upper()


@given(st.from_regex(r"/[!-~]{0,80}", fullmatch=True), st.integers(100, 599))
def test_a_logged_target_comes_back(target: str, status: int) -> None:
    escaped = target.replace("\\", "%5C").replace('"', "%22")
    request = parsed(f'- - - [-] "POST {escaped} HTTP/1.1" {status} 12')
    assert request is not None
    assert (request.method, request.status) == ("POST", status)
    whole = escaped.partition("#")[0]
    assert request.query == whole.partition("?")[2]


@each("part", ['"', '\\"', '"\\', '" 2', '"GET / HTTP/1.1" ', "{", '{"request":', '"GET ', "\\"])
def test_the_longest_hostile_lines_take_little_time(part: str) -> None:
    """Some took 24 s, when the time grew with the square of the length; now it is 5 ms."""
    line = (part * MAX_LINE)[: MAX_LINE - 1].encode()
    started = time.process_time()
    assert len([*lines(io.BytesIO(line))]) == 1
    assert time.process_time() - started < 1
