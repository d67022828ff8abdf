"""What is sent, and what is read, byte by byte; and servers that do not behave."""

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic, sleep
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sso.ldap import directory, messages, search_filters
from sso.ldap.connection import Connection, Refused, Server, Unavailable
from sso.ldap.directory import AMBIGUOUS, UNKNOWN, Directory, NotAllowed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.integers(-(2**62), 2**62))
def test_numbers(number: int) -> None:
    tag, contents = messages.Reader(messages.integer(number)).element()
    assert (tag, messages.to_int(contents)) == (messages.INTEGER, number)


@given(st.lists(st.binary(max_size=70_000), max_size=3))
def test_elements(parts: list[bytes]) -> None:
    whole = messages.encode(
        messages.SEQUENCE, *(messages.encode(messages.OCTETS, part) for part in parts)
    )
    inner = messages.Reader(messages.Reader(whole).take(messages.SEQUENCE))
    assert [value for _, value in inner.rest()] == parts
    assert messages.header(whole[:1]) is None


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_nonsense_is_refused(data: bytes) -> None:
    for read in (messages.split, messages.result, messages.entry, messages.policy_error):
        try:
            read(data)
        except ValueError:
            continue


def test_an_element_of_another_tag() -> None:
    with pytest.raises(messages.Malformed, match="in place of"):
        messages.Reader(messages.text("dn")).take(messages.SEQUENCE)


def control(name: str, *parts: bytes) -> bytes:
    return messages.encode(messages.SEQUENCE, messages.text(name), *parts)


def test_what_the_password_policy_objects() -> None:
    """Its control among others (draft-behera-ldap-password-policy §6.2), with a warning or not."""
    warning = messages.encode(0xA0, messages.encode(0x80, b"\x05"))
    must_change = messages.encode(messages.SEQUENCE, warning, messages.encode(0x81, b"\x02"))
    value = messages.encode(messages.OCTETS, must_change)
    critical = messages.encode(0x01, b"\xff")
    ours, other = messages.POLICY_CONTROL, control("1.2.840.113556.1.4.319", value)
    assert messages.policy_error(other + control(ours, critical, value)) == 2
    assert messages.policy_error(control(ours, value)) == 2
    only_warns = messages.encode(messages.OCTETS, messages.encode(messages.SEQUENCE, warning))
    for silent in (other, control(ours), control(ours, messages.encode(messages.OCTETS)), b""):
        assert messages.policy_error(silent) is None
    assert messages.policy_error(control(ours, only_warns)) is None


def test_the_controls_of_a_message() -> None:
    done = messages.encode(0x65, b"")
    for kind, expected in ((0xA0, b"x"), (0xA1, b"")):
        message = messages.encode(
            messages.SEQUENCE, messages.integer(1), done, messages.encode(kind, b"x")
        )
        assert messages.split(message)[3] == expected


def test_lengths_that_are_too_much() -> None:
    for data in (b"\x30\x80\0\0", b"\x30\x85\x01\0\0\0\0", b"\x3f\x01\0"):
        with pytest.raises(messages.Malformed):
            messages.header(data)
    with pytest.raises(messages.Malformed):
        messages.to_int(b"")


def elements(encoded: bytes) -> tuple[int, list[bytes]]:
    tag, contents = messages.Reader(encoded).element()
    return tag, [value for _, value in messages.Reader(contents).rest()]


@given(TEXT)
def test_input_is_one_value(value: str) -> None:
    """Whatever a person types, the condition stays one comparison with that text."""
    assert elements(search_filters.equal("uid", value.encode())) == (0xA3, [b"uid", value.encode()])
    escaped = "".join(f"\\{byte:02x}" for byte in value.encode())
    assert search_filters.parse(f"(uid={escaped})") == search_filters.equal("uid", value.encode())


@given(TEXT)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    for candidate in (text, f"({text})", f"(cn={text})"):
        try:
            search_filters.parse(candidate)
        except ValueError:
            continue


def test_filters() -> None:
    person = search_filters.equal("objectClass", b"person")
    assert search_filters.parse(" (objectClass=person) ") == person
    assert search_filters.parse("(&(objectClass=person))") == search_filters.every(person)
    mail = messages.encode(0x87, b"mail")
    assert search_filters.parse("(|(!(mail=*))(objectClass=person))") == search_filters.either(
        messages.encode(0xA2, mail), person
    )
    for operator, tag in ((">=", 0xA5), ("<=", 0xA6), ("~=", 0xA8)):
        assert elements(search_filters.parse(f"(a;x-b{operator}1)")) == (tag, [b"a;x-b", b"1"])
    tag, (attribute, pieces) = elements(search_filters.parse("(cn=a*b*c\\2a)"))
    assert (tag, attribute) == (0xA4, b"cn")
    assert [*messages.Reader(pieces).rest()] == [(0x80, b"a"), (0x81, b"b"), (0x82, b"c*")]
    assert elements(search_filters.parse("(cn=*b*)")) == (
        0xA4,
        [b"cn", messages.encode(0x81, b"b")],
    )
    chain = search_filters.parse(f"(memberOf:{search_filters.IN_CHAIN}:=cn=a,dc=b)")
    assert chain == search_filters.matching("memberOf", search_filters.IN_CHAIN, b"cn=a,dc=b")
    assert elements(search_filters.parse("(cn:dn:2.4.6.8.10:=Dino)"))[1][-1] == b"\xff"


def test_how_deep_a_filter_may_be() -> None:
    most = "(!" * 20 + "(a=b)" + ")" * 20
    assert search_filters.parse(most)
    with pytest.raises(ValueError, match="too deep"):
        search_filters.parse(f"(!{most})")


def test_a_rule_or_an_attribute_is_enough() -> None:
    for text in ("(cn:=a)", "(:2.5.13.2:=a)", "(cn:2.5.13.2:=a)"):
        assert search_filters.parse(text)


def test_what_is_no_filter() -> None:
    for text in (
        *("", "cn=a", "(cn=a", "(cn=a))", "()", "(&)", "(=a)", "(cn)", "(cn=**)", "(cn>=a*)"),
        *("(cn=\\2)", "(cn=a\0)", "(" * 40, "(&(cn=a)b)", "(:=a)", "(cn=(a))"),
    ):
        with pytest.raises(ValueError, match="character"):
            search_filters.parse(text)


def test_spellings_of_names() -> None:
    spellings = (
        "CN=Ops\\, Night,OU=Groups,DC=example",
        "cn=ops\\2C night, ou=groups , dc=EXAMPLE",
        "cn = Ops\\,  Night;ou=Groups,dc=example",
    )
    assert len({directory.normal_name(one) for one in spellings}) == 1
    assert directory.first_value(spellings[0]) == "Ops, Night"
    others = ("CN=Ops,CN=Night,OU=Groups,DC=example", "CN=Ops\\, Night+OU=Groups,DC=example")
    assert len({directory.normal_name(one) for one in (spellings[0], *others)}) == 3


@given(TEXT)
def test_any_name_has_a_normal_form(text: str) -> None:
    assert directory.normal_name(text) == directory.normal_name(text)
    directory.first_value(text)


@contextmanager
def answering(answer: Callable[[socketserver.BaseRequestHandler], None]) -> Iterator[Server]:
    """A server that does this with each connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                answer(self)
            except OSError:
                return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield Server("127.0.0.1", server.server_address[1], "none")
        server.shutdown()


def message(number: int, tag: int, *parts: bytes) -> bytes:
    return messages.encode(
        messages.SEQUENCE, messages.integer(number), messages.encode(tag, *parts)
    )


def result(number: int, tag: int, code: int = 0) -> bytes:
    return message(
        number,
        tag,
        messages.integer(code, messages.ENUMERATED),
        messages.text(""),
        messages.text(""),
    )


def search(server: Server, seconds: float = 0.4, most: int = 2) -> int:
    with Connection(server, ssl.create_default_context(), seconds) as connection:
        found = connection.search("dc=x", search_filters.equal("cn", b"a"), ["cn"], most)
    return len(found.entries)


def refusal(server: Server) -> str:
    begun = monotonic()
    with pytest.raises(Unavailable) as refused:
        search(server)
    assert monotonic() - begun < 3
    return str(refused.value)


@pytest.mark.slow  # it waits
def test_servers_that_do_not_behave() -> None:
    entry = message(1, 0x64, messages.text("cn=a"), messages.encode(messages.SEQUENCE))

    def sends(*data: bytes) -> Callable[[socketserver.BaseRequestHandler], None]:
        def answer(handler: socketserver.BaseRequestHandler) -> None:
            handler.request.recv(1000)
            for one in data:
                handler.request.sendall(one)
            handler.request.recv(1000)

        return answer

    def trickles(handler: socketserver.BaseRequestHandler) -> None:
        for byte in message(1, 0x64, messages.text("c" * 100)):
            handler.request.sendall(bytes((byte,)))
            sleep(0.05)

    with answering(sends(entry, result(1, 0x65))) as server:
        assert search(server, 5) == 1
    with answering(sends(entry * 4)) as server:
        assert search(server, 5) == 2
    huge = b"\x30\x84\x7f\xff\xff\xff"
    for answer, reason in (
        (sends(), "too slow"),
        (trickles, "too slow"),
        (lambda handler: None, "closed|reset|Broken"),
        (sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak LDAP|too slow"),
        (sends(huge), "more than it was asked"),
        (
            sends(message(1, 0x73, messages.text("ldap://x" * 12_000)) * 12),
            "more than it was asked",
        ),
        (sends(result(7, 0x65)), "another question"),
        (sends(result(1, 0x61)), "another question"),
        (sends(result(0, 0x78)), "ends the connection"),
        (sends(message(1, 0x64, messages.encode(messages.OCTETS, b"\xff"))), "does not speak LDAP"),
    ):
        with answering(answer) as server:
            text = refusal(server)
            assert any(one in text for one in reason.split("|")), (text, reason)


def test_a_name_that_is_not_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's own patience is half a minute."""
    release = threading.Event()

    def hangs(*_: object, **__: object) -> list[object]:
        release.wait(5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    begun = monotonic()
    with pytest.raises(Unavailable, match="too slow"):
        Connection(Server("ldap.example", 389, "none"), ssl.create_default_context(), 0.1)
    assert monotonic() - begun < 2
    release.set()


def test_start_tls_cannot_be_stripped() -> None:
    """Nothing is sent in clear if the offer is refused, or words are slipped in before TLS."""
    seen: list[bytes] = []

    def strips(handler: socketserver.BaseRequestHandler) -> None:
        seen.append(handler.request.recv(1000))
        handler.request.sendall(result(1, 0x78, 2))
        seen.append(handler.request.recv(1000))

    def injects(handler: socketserver.BaseRequestHandler) -> None:
        seen.append(handler.request.recv(1000))
        handler.request.sendall(result(1, 0x78) + result(2, 0x61))
        seen.append(handler.request.recv(1000))

    for answer, reason in ((strips, "refuses StartTLS"), (injects, "before TLS")):
        with answering(answer) as server:
            assert reason in refusal(Server(server.host, server.port, "starttls"))
    for _ in range(100):  # the server's thread sees the end of the connection a moment later
        if len(seen) == 4:
            break
        sleep(0.02)
    assert b"1.3.6.1.4.1.1466.20037" in seen[0]
    assert seen[1::2] == [b"", b""]


@pytest.mark.slow
def test_a_directory_that_hangs_keeps_few_waiting() -> None:
    """A bounded number wait for a slow directory; the others are told at once."""
    release = threading.Event()

    def hangs(handler: socketserver.BaseRequestHandler) -> None:
        release.wait(5)

    with answering(hangs) as server:
        directory = Directory(
            servers=(server,), base="dc=x", user_filter=search_filters.parse("(cn=*)"),
            login_attributes=("uid",), subject_attribute="entryUUID", user_name_attribute="uid",
            seconds=1, at_once=2,
        )  # fmt: skip
        ended: list[str] = []

        def ask() -> None:
            with pytest.raises(Unavailable) as refused:
                directory.sign_in("dana", "secret", datetime.now(UTC), lambda _: None)
            ended.append(str(refused.value))

        waiting = [threading.Thread(target=ask) for _ in range(2)]
        for thread in waiting:
            thread.start()
        sleep(0.2)
        begun = monotonic()
        ask()
        assert monotonic() - begun < 0.2
        assert ended == ["too many people wait for it"]
        for thread in waiting:
            thread.join(5)
        assert all("too slow" in text for text in ended[1:])
        ask()  # there is room again
        assert len(ended) == 4
        release.set()


def test_a_person_is_in_as_many_groups_as_there_may_be_and_no_more() -> None:
    def groups(count: int) -> int:
        values = [f"cn=g{number},dc=example".encode() for number in range(count)]
        entry = messages.Entry("cn=dana", {"memberof": values})
        return len(directory.groups_of(directory.GroupRules(), Mock(), entry, ""))

    assert groups(directory.MOST_GROUPS) == directory.MOST_GROUPS
    with pytest.raises(Refused, match="more than"):
        groups(directory.MOST_GROUPS + 1)


def plain(*servers: Server) -> Directory:
    return Directory(
        servers=servers,
        base="dc=x",
        user_filter=search_filters.parse("(cn=*)"),
        login_attributes=("uid",),
        subject_attribute="entryUUID",
        user_name_attribute="uid",
    )


@pytest.mark.parametrize(
    ("code", "reason"), [(0, None), (4, AMBIGUOUS)], ids=["all entries", "size limit"]
)
def test_an_answer_that_was_cut_signs_nobody_in(code: int, reason: str | None) -> None:
    """It shows one entry, but the server may have stopped before the second one."""
    subject = messages.encode(
        messages.SEQUENCE, messages.text("entryUUID"), messages.encode(messages.SET, b"\x04\x017")
    )
    entry = message(
        1, 0x64, messages.text("uid=dana,dc=x"), messages.encode(messages.SEQUENCE, subject)
    )
    tried: list[str | None] = []

    def answer(handler: socketserver.BaseRequestHandler) -> None:
        handler.request.recv(1000)
        handler.request.sendall(entry + result(1, 0x65, code))
        handler.request.recv(1000)
        handler.request.sendall(result(2, 0x61))
        handler.request.recv(1000)

    with answering(answer) as server:

        def sign_in() -> str:
            return plain(server).sign_in("dana", "secret", datetime.now(UTC), tried.append).subject

        if reason is None:
            assert sign_in() == "7"
            assert tried == ["7"]
        else:
            with pytest.raises(NotAllowed) as refused:
                sign_in()
            assert refused.value.reason == reason
            assert tried == []


@pytest.mark.parametrize(
    ("login", "password"), [("", "x"), (" ", "x"), ("\t\u3000", "x"), ("\0", "x"), ("dana", "")]
)
def test_no_server_is_asked_for_nobody(login: str, password: str) -> None:
    """Without a server, any question to one would raise `Unavailable`."""
    with pytest.raises(NotAllowed) as refused:
        plain().sign_in(login, password, datetime.now(UTC), lambda _: None)
    assert refused.value.reason == UNKNOWN
    with pytest.raises(Unavailable):
        plain().sign_in("dana", "x", datetime.now(UTC), lambda _: None)
