"""The networks that IP addresses belong to, for limits."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

# The lengths of the prefixes that one customer may have. One network has a /64 (RIPE-690).
WIDER = (56, 48)

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: an IPv4 address is in the last 32 bits
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215: it is somewhere in the address


def of(text: str | None) -> str:
    """Return the network of an IP address: an IPv4 address itself, IPv6 by /64."""
    ip = _read(text)
    if ip is None:
        return "unknown"
    return _network(ip, 64) if isinstance(ip, IPv6Address) else str(ip)


def around(text: str | None) -> list[tuple[int, str]]:
    """Return the wider networks of an IPv6 address, each with the length of its prefix."""
    ip = _read(text)
    if not isinstance(ip, IPv6Address) or ip in _LOCAL_NAT64:
        return []
    return [(length, _network(ip, length)) for length in WIDER]


def widest(text: str | None) -> str:
    """Return the widest network of an IP address: an IPv4 address itself, IPv6 by /48."""
    return around(text)[-1][1] if around(text) else of(text)


def _read(text: str | None) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; return the IPv4 address if the IPv6 address only stands for one.

    Otherwise all of IPv4, or all clients of one relay, would be one network. A client gains nothing
    by choosing the embedded address: the answer goes there, and without it there is no connection.
    """
    try:
        ip = ip_address(_without_port(text or "").partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1] or ip


def _network(ip: IPv6Address, length: int) -> str:
    if ip in _LOCAL_NAT64:
        return str(ip)
    return str(ip_network((int(ip) >> (128 - length) << (128 - length), length)))


def _without_port(text: str) -> str:
    """Remove the port, which some proxies write: `198.51.100.7:51234`, `[2001:db8::1]:51234`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
