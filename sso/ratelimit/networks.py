"""Which IP addresses count as one network, for limits."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

# What one customer may have beyond a /64, which is one network of theirs (RIPE-690).
WIDER = (56, 48)

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address is in the last 32 bits
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215: it is somewhere in the address


def of(address: str | None) -> str:
    """The network that counts as one: an IPv4 address itself, IPv6 by /64."""
    found = _read(address)
    if found is None:
        return "unknown"
    return _network(found, 64) if isinstance(found, IPv6Address) else str(found)


def around(address: str | None) -> list[tuple[int, str]]:
    """The wider networks that an IPv6 address is in, by the length of their prefixes."""
    found = _read(address)
    if not isinstance(found, IPv6Address) or found in _LOCAL_NAT64:
        return []
    return [(length, _network(found, length)) for length in WIDER]


def widest(address: str | None) -> str:
    """The widest of these networks: an IPv4 address itself, IPv6 by /48."""
    return around(address)[-1][1] if around(address) else of(address)


def _read(address: str | None) -> IPv4Address | IPv6Address | None:
    """The address; IPv4 where it is only carried in an IPv6 address.

    Else all of IPv4, or all clients of one relay, would be one network. Nobody gains by choosing
    what is carried: the answer goes there, and without it there is no connection.
    """
    try:
        found = ip_address(_without_port(address or "").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv4Address):
        return found
    if found in _NAT64:
        return IPv4Address(int(found) & 0xFFFF_FFFF)
    return found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1] or found


def _network(address: IPv6Address, length: int) -> str:
    if address in _LOCAL_NAT64:
        return str(address)
    return str(ip_network((int(address) >> (128 - length) << (128 - length), length)))


def _without_port(address: str) -> str:
    """Some proxies write the port, too: `198.51.100.7:51234`, `[2001:db8::1]:51234`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address
