"""When a request is complete, as gunicorn's parser would say, and who is dropped first."""

from time import process_time

import pytest
from gunicorn.config import Config
from gunicorn.http import get_parser
from gunicorn.http.errors import NoMoreData

from sso.process.concurrency import MAX_BODY, MAX_UPLOAD
from sso.server.arrival import MOST_HEAD, TOO_LARGE_BODY, TOO_LARGE_HEAD, Arrival, Waiting
from tests.support.each import each

POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12)
WHOLE = {
    "no body": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no headers": b"GET / HTTP/1.0\r\n\r\n",
    "empty line first": b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "length": POST + b"Content-Length: 5\r\n\r\nabcde",
    "length 0": POST + b"content-length:0\r\n\r\n",
    "other spelling": POST + b"CONTENT-LENGTH: \t05 \r\n\r\nabcde",
    "body of line ends": POST + b"Content-Length: 4\r\n\r\n\r\n\r\n",
    "length in a value": POST + b"X: Content-Length: 9\r\nContent-Length: 1\r\n\r\na",
    "chunks": CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
    "chunks with trailers": CHUNKED + b"1\r\na\r\n0\r\nX: y\r\nZ: z\r\n\r\n",
    "chunks of line ends": CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n",
    "coding spelled": POST + b"TRANSFER-ENCODING:  Chunked\r\n\r\n00000000001\r\na\r\n000\r\n\r\n",
    "expects": POST + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nab",
}
REFUSED = {  # by gunicorn, and at once
    "two lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "no number": POST + b"Content-Length: +5\r\n\r\n",
    "negative": POST + b"Content-Length: -5\r\n\r\n",
    "other coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "size of a chunk": CHUNKED + b"x\r\n",
    "line of a size": CHUNKED + b"1;" + 9000 * b"a",
    "expects more": POST + b"Expect: all\r\nContent-Length: 5\r\n\r\n",
}


class Source:
    """A socket for gunicorn's parser: it has what arrived, and then nothing."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival, self.is_cut = arrival, False

    def recv(self, size: int) -> bytes:
        data = self.arrival.take(size)
        self.is_cut |= not data
        return data


def parsed(arrival: Arrival) -> tuple[bytes, bytes, bool]:
    """The body that gunicorn reads, what is left, and whether it wanted more."""
    source = Source(arrival)
    parser = get_parser(Config(), source, ("127.0.0.1", 1))
    body = next(parser).body.read()
    return body, parser.unreader.take_buffered() + arrival.take(MAX_BODY), source.is_cut


@each("name", WHOLE)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 10_000])
def test_a_request_is_complete_with_its_last_byte(name: str, step: int) -> None:
    data, arrival = WHOLE[name], Arrival()
    for start in range(0, len(data), step):
        assert not arrival.is_complete
        arrival.add(data[start : start + step])
    assert arrival.is_complete
    assert not arrival.refusal
    _, rest, is_cut = parsed(arrival)
    assert (rest, is_cut) == (b"", False)


@each("name", WHOLE)
def test_what_follows_belongs_to_the_next_request(name: str) -> None:
    arrival = Arrival(WHOLE[name] + WHOLE["length"][:-1])
    assert arrival.is_complete
    _, rest, is_cut = parsed(arrival)
    assert (rest, is_cut) == (WHOLE["length"][:-1], False)
    following = Arrival(rest)
    assert not following.is_complete
    following.add(b"e")
    assert following.is_complete


@each("name", REFUSED)
def test_what_gunicorn_refuses_does_not_wait(name: str) -> None:
    arrival = Arrival(REFUSED[name])
    assert arrival.is_complete
    with pytest.raises(Exception) as raised:  # noqa: PT011
        parsed(arrival)
    assert not isinstance(raised.value, NoMoreData | StopIteration)


@pytest.mark.parametrize("size", [MAX_BODY - 1, MAX_BODY, MAX_BODY + 1])
def test_the_length_of_a_body_is_bounded(size: int) -> None:
    """A longer one is refused by its length, whatever has come of it."""
    arrival = Arrival(POST + b"Content-Length: %d\r\n\r\n" % size)
    assert arrival.is_complete == (size > MAX_BODY)
    arrival.add((size - 1) * b"a")
    assert arrival.is_complete == (size > MAX_BODY)
    arrival.add(b"a")
    assert arrival.is_complete


@pytest.mark.parametrize(
    ("target", "most"),
    [
        ("/api/auth/account/picture", MAX_UPLOAD),
        ("/account/picture?x=/", MAX_UPLOAD),
        ("http://127.0.0.1:5000/api/auth/admin/person/picture?id=1", MAX_UPLOAD),
        ("/api/auth/account/picture/", MAX_BODY),
        ("/api/auth/account?x=/account/picture", MAX_BODY),
        ("/account/picture#/account/pictures", MAX_BODY),
        ("", MAX_BODY),
    ],
)
def test_the_body_of_an_upload_may_be_longer(target: str, most: int) -> None:
    head = f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: "
    arrival = Arrival(f"{head}{most}\r\n\r\n".encode())
    assert not arrival.is_complete
    arrival.add((most - 1) * b"a")
    assert not arrival.is_complete
    arrival.add(b"a")
    assert arrival.is_complete
    assert Arrival(f"{head}{most + 1}\r\n\r\n".encode()).is_complete


def test_an_upload_is_taken_in_pieces_without_copying_the_rest() -> None:
    arrival = Arrival(b"POST /account/picture HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n")
    arrival.add(5_000_000 * b"a")
    began, size = process_time(), 0
    while data := arrival.take(8192):
        size += len(data)
    assert size > 5_000_000
    assert process_time() - began < 0.2


@pytest.mark.parametrize("chunk", [1000, MAX_BODY, 10 * MAX_BODY, 10**15])
def test_chunks_are_bounded(chunk: int) -> None:
    """One byte too many is enough for the application to refuse the body."""
    arrival, sent = Arrival(CHUNKED), 0
    while not arrival.is_complete and sent <= MAX_BODY + 1000:
        arrival.add(b"%x\r\n" % chunk)
        for start in range(0, min(chunk, MAX_BODY + 1), 1000):
            arrival.add(min(1000, chunk - start) * b"a")
            sent += min(1000, chunk - start)
        arrival.add(b"\r\n")
    assert arrival.is_complete
    source = Source(arrival)
    request = next(get_parser(Config(), source, ("127.0.0.1", 1)))
    assert len(request.body.read(MAX_BODY + 1)) == MAX_BODY + 1
    assert not source.is_cut


def test_a_head_is_bounded() -> None:
    arrival = Arrival()
    for _ in range(MOST_HEAD // 1000):
        arrival.add(1000 * b"a")
    assert not arrival.refusal
    arrival.add(1000 * b"a")
    assert arrival.refusal == TOO_LARGE_HEAD


def test_what_surrounds_chunks_is_bounded() -> None:
    arrival = Arrival(CHUNKED)
    while len(arrival.data) < 2 * MAX_BODY:
        assert not arrival.refusal
        arrival.add(1000 * b"1\r\na\r\n")
    arrival.add(1000 * b"1\r\na\r\n")
    assert arrival.refusal == TOO_LARGE_BODY


@pytest.mark.parametrize(
    ("version", "expect", "length", "expects"),
    [
        (b"1.1", b"100-continue", b"1", True),
        (b"1.1", b"100-CONTINUE", b"1", True),
        (b"1.0", b"100-continue", b"1", False),
        (b"1.1", b"200-ok", b"1", False),
    ],
)
def test_a_client_that_waits_is_told_to_go_on(
    version: bytes, expect: bytes, length: bytes, expects: bool
) -> None:
    head = b"POST / HTTP/%b\r\nExpect: %b\r\nContent-Length: %b\r\n\r\n"
    assert Arrival(head % (version, expect, length)).expects_continue is expects


def test_the_header_of_the_proxy_protocol_is_no_head() -> None:
    arrival = Arrival(PROXY_V2)
    assert not arrival.is_complete
    arrival.add(WHOLE["no body"])
    assert arrival.is_complete


@pytest.mark.parametrize(
    ("forwarded", "proxies", "network"),
    [
        ([b"192.0.2.1"], 0, ""),
        ([b"192.0.2.1"], 1, "192.0.2.1"),
        ([b"192.0.2.1, 198.51.100.2"], 1, "198.51.100.2"),
        ([b"192.0.2.1", b"198.51.100.2"], 2, "192.0.2.1"),
        ([b"192.0.2.1"], 2, ""),
        ([b"2001:db8:1:2::3"], 1, "2001:db8:1::/48"),
        ([], 1, ""),
        ([b" "], 1, ""),
        ([b"\xff"], 1, "unknown"),
    ],
)
def test_trusted_proxies_say_whose_request_it_is(
    forwarded: list[bytes], proxies: int, network: str
) -> None:
    fields = b"".join(b"X-Forwarded-For: %b\r\n" % value for value in forwarded)
    arrival = Arrival(POST + fields + b"Content-Length: 5\r\n\r\n")
    assert arrival.network(proxies) == network
    assert Arrival(POST + fields).network(proxies) == ""  # the head is not complete


def test_the_oldest_of_the_largest_network_is_dropped() -> None:
    waiting: Waiting[int] = Waiting()
    waiting.add(0, "neighbour")
    for number in range(1, 4):
        waiting.add(number, "many")
    waiting.add(1, "many")  # keeps its place
    assert waiting.longest() == 1
    waiting.discard(1)
    waiting.add(4, "neighbour")
    assert (len(waiting), waiting.longest()) == (4, 0)  # as many: the one that waits longest
    waiting.add(0, "many")  # it turns out to be theirs
    assert waiting.longest() == 2
    for number in (0, 2, 3, 4, 4):
        waiting.discard(number)
    assert (len(waiting), list(waiting)) == (0, [])


LONG = {
    "spaces in a value": POST + b"X-SSO-Head-Only: a" + 60_000 * b" " + b"b\r\n\r\n",
    "spaces and a carriage return": POST + b"Expect:" + 3000 * b" " + b"\rb\r\n\r\n",
    "spaces before no colon": POST + b"Content-Length" + 60_000 * b" " + b"\r\n\r\n",
    "tabs before a value": POST + b"Content-Length:" + 60_000 * b"\t" + b"5\r\n\r\n",
}
FORWARDED = b"X-Forwarded-For: " + 60_000 * b"," + b"x\r\n"
BEGUN = {  # what may come byte by byte after it
    "head": POST + b"X-A: " + 60_000 * b"a",
    "trailers": CHUNKED + b"0\r\n" + 70_000 * b"X: a\r\n",
    "body of a forwarded request": POST + FORWARDED + b"Content-Length: 99999\r\n\r\n",
}


@each("name", LONG)
def test_no_head_takes_long(name: str) -> None:
    """The loop waits for it, and with it all other clients."""
    begun = process_time()
    Arrival(LONG[name])
    assert process_time() - begun < 0.5


@each("name", BEGUN)
def test_what_has_arrived_is_not_read_for_each_byte(name: str) -> None:
    arrival = Arrival(BEGUN[name])
    begun = process_time()
    for _ in range(5000):
        arrival.add(b"a")
        arrival.network(1)
    assert process_time() - begun < 0.5
    assert not arrival.is_complete
