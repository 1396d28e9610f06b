"""What `reset()` of the storage for `limits` does on a server: it deletes, and needs a client of its own for that."""

from __future__ import annotations

import re
from typing import Any

from ._native import server_arguments


def client_of(url: str, certificate_authority: str | bytes | None) -> Any:
    """A client of the server of a store."""
    # Nothing but one administrative call needs it.
    try:
        import redis
    except ImportError as error:
        raise NotImplementedError("reset() of a server needs the package redis") from error
    # The engine reads the URL: other clients call the parts of one by other names.
    arguments = server_arguments(url)
    service = arguments.pop("service_name", None)
    nodes = arguments.pop("startup_nodes", ())
    if certificate_authority is not None and arguments.get("ssl"):
        pem = certificate_authority.decode() if isinstance(certificate_authority, bytes) else certificate_authority
        arguments["ssl_ca_data"] = pem
        if service is not None:
            arguments["sentinel_kwargs"]["ssl_ca_data"] = pem
    if nodes:
        from redis.cluster import ClusterNode

        # It has no types of its own.
        node: Any = ClusterNode
        return redis.RedisCluster(startup_nodes=[node(host, port) for host, port in nodes], **arguments)
    if service is None:
        return redis.Redis(**arguments)
    from redis.sentinel import Sentinel

    # It has no types of its own.
    sentinel: Any = Sentinel
    return sentinel(**arguments).master_for(service)


def delete_all(client: Any, prefix: str, names: str) -> int:
    """Deletes the keys behind a prefix whose names match a regular expression. On a cluster, a tag in braces is before each."""
    literal = "".join(f"\\{c}" if c in "*?[]^\\" else c for c in prefix)
    wanted = re.compile(f"{re.escape(prefix)}(?:\\{{[^{{}}]*\\}})?{names}".encode())
    count = 0
    # The pattern finds others as well; what is looked at is not deleted.
    for key in client.scan_iter(match=f"{literal}*rk:?:limits-*", count=1_000):
        if wanted.match(key):
            count += int(client.unlink(key))
    return count
