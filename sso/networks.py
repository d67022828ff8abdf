"""Which addresses count as one network, for limits."""

from ipaddress import IPv6Address, ip_address, ip_network


def of(address: str | None) -> str:
    """What counts as one address: IPv4 as it is, IPv6 by /64."""
    try:
        found = ip_address(_without_port(address or "").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ip_network((int(found) >> 64 << 64, 64)))
    return str(found)


def _without_port(address: str) -> str:
    """Some proxies write the port, too: `198.51.100.7:51234`, `[2001:db8::1]:51234`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address
