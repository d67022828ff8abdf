"""The IP addresses that this server does not call: one list for everything it calls.

The list is our own, because the private and global addresses of `ipaddress` depend on the patch
level of Python. It follows IANA's registries of special-purpose addresses (RFC 6890), and adds the
metadata services of clouds, some of which have ordinary addresses.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address

PRIVATE = "private"  # the kind of address that settings may allow
# Never called, whatever the settings say.
_NEVER = {
    kind: tuple(map(ip_network, networks.split()))
    for kind, networks in {
        "link-local": "169.254.0.0/16 fe80::/10",
        # Azure, Alibaba Cloud, Oracle Cloud; AWS with all its services in IPv6, Google Cloud,
        # Oracle Cloud, Scaleway, Akamai, Alibaba Cloud.
        "cloud metadata": "168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::/32 fd20:ce::254"
        " fd00:c1::a9fe:a9fe fd00:42::42 fd00:a9fe:a9fe::1 fd00:100::100:200",
        "multicast": "224.0.0.0/4 ff00::/8",
        "reserved": "0.0.0.0/8 255.255.255.255 ::",
    }.items()
}
# Not public, although the network around it is.
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
            *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
        ),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# IPv6 networks whose addresses stand for an IPv4 address, and the position of its last bit.
_MAPPED, _NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
_6TO4, _TEREDO = IPv6Network("2002::/16"), IPv6Network("2001::/32")
_CARRIERS = (
    (_MAPPED, 0),
    (_NAT64, 0),  # RFC 6052
    (IPv6Network("::/96"), 0),  # IPv4-compatible (RFC 4291 §2.5.5.1)
    (IPv6Network("::ffff:0:0:0/96"), 0),  # RFC 2765
    (_6TO4, 80),  # RFC 3056
    (_TEREDO, 64),  # its server (RFC 4380)
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215
_BITS = 0xFFFFFFFF
_NUMBER = "(?:0[xX][0-9a-fA-F]+|[0-9]+)"
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}")


def forbidden(ip: str | Address, only_public: bool) -> str | None:
    """Return the kind of an address that must not be called, or `None`.

    `only_public`: refuse private and loopback addresses, too.
    """
    peer = ip_address(ip.partition("%")[0]) if isinstance(ip, str) else ip
    for each in (peer, *_embedded(peer)):
        for kind, networks in _NEVER.items():
            if any(each in network for network in networks):
                return kind
    return PRIVATE if only_public and not _is_public(peer) else None


def literal(host: str) -> Address | None:
    """Parse a host as an IP address in any notation, such as `127.1` or `0x7f000001`.

    Returns `None` if it is a name.
    """
    text = host.strip("[]").partition("%")[0].removesuffix(".")
    with suppress(ValueError):
        return ip_address(text)
    if _NUMERIC.fullmatch(text):
        with suppress(OSError):
            return IPv4Address(socket.inet_aton(text))
    return None


def _is_public(peer: Address) -> bool:
    if any(peer in network for network in _NOT_PUBLIC):
        return False
    if isinstance(peer, IPv4Address):
        return True
    is_translated = peer in _MAPPED or peer in _NAT64
    return (is_translated or peer in _GLOBAL_UNICAST) and all(map(_is_public, _embedded(peer)))


def _embedded(peer: Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address stands for."""
    if isinstance(peer, IPv4Address):
        return
    value = int(peer)
    for network, shift in _CARRIERS:
        if peer in network and value > 1:
            yield IPv4Address(value >> shift & _BITS)
    if peer in _TEREDO:
        yield IPv4Address(~value & _BITS)
    if value >> 32 & 0xFDFFFFFF == 0x5EFE:  # ISATAP (RFC 5214 §6.1)
        yield IPv4Address(value & _BITS)
    if peer in _LOCAL_NAT64:
        # The network chose the length of its prefix. RFC 6052 §2.2 leaves out bits 64 to 71.
        compact = value >> 64 << 56 | value & (1 << 56) - 1
        for inner in (value, *(compact >> 88 - length for length in (48, 56, 64))):
            if inner >> 24 & 0xFF:  # others would begin with 0
                yield IPv4Address(inner & _BITS)
