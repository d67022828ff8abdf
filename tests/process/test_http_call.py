"""Requests to registered URLs: which addresses are refused."""

import socket
from typing import Any

import pytest

from sso.process import http_call

LINK_LOCAL = ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.1.1", "0.0.0.0", "::", "224.0.0.1"]
PRIVATE = [
    "10.0.0.7", "172.16.0.1", "192.168.1.1", "127.0.0.1", "127.255.0.1", "::1", "fd00::1",
    "100.64.0.1", "::ffff:10.0.0.7", "2002:0a00:0007::1", "64:ff9b::10.0.0.7", "198.18.0.1",
    "192.0.2.1", "64:ff9b:1::10.0.0.7", "::10.0.0.7", "::ffff:0:10.0.0.7", "fec0::1", "5f00::1",
]  # fmt: skip
PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34"]


class Network:
    """Stands for the resolver and for sockets."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.called: list[str] = []
        self.asked = 0

    def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]

    def socket(self, *_: Any) -> "Network":
        return self

    def connect(self, address: tuple[str, int]) -> None:
        self.called.append(address[0])
        raise ConnectionRefusedError

    def settimeout(self, _: float) -> None: ...
    def close(self) -> None: ...


def call(monkeypatch: pytest.MonkeyPatch, network: Network, only_public: bool) -> OSError:
    monkeypatch.setattr(socket, "getaddrinfo", network.getaddrinfo)
    monkeypatch.setattr(socket, "socket", network.socket)
    with pytest.raises(OSError) as caught:  # noqa: PT011 (any is meant)
        http_call.call("GET", "http://keys.example/", only_public=only_public)
    return caught.value


@pytest.mark.parametrize("address", LINK_LOCAL)
@pytest.mark.parametrize("only_public", [True, False])
def test_link_local_addresses(
    monkeypatch: pytest.MonkeyPatch, address: str, only_public: bool
) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public), http_call.ForbiddenPeer)
    assert network.called == []


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public=True), http_call.ForbiddenPeer)
    assert network.called == []
    assert isinstance(call(monkeypatch, network, only_public=False), ConnectionRefusedError)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    network = Network(address)
    assert isinstance(call(monkeypatch, network, only_public=True), ConnectionRefusedError)
    assert network.called == [address]


def test_a_name_is_resolved_once_and_a_private_address_beside_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is rebound has another address at the second look."""
    network = Network("10.0.0.7", *PUBLIC, *PUBLIC)
    call(monkeypatch, network, only_public=True)
    assert network.called == PUBLIC[:3]
    assert network.asked == 1
