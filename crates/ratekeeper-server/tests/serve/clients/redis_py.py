"""What a program with redis-py does, on the port that is its argument."""

import asyncio
import sys

import redis
import redis.asyncio

PORT = int(sys.argv[1])


def throttle(client, key, *numbers):
    return client.execute_command("CL.THROTTLE", key, *numbers)


for protocol in (2, 3):
    client = redis.Redis(port=PORT, protocol=protocol, client_name="tests", health_check_interval=1)
    key = f"py{protocol}"
    assert client.ping() is True
    assert throttle(client, key, 1, 1, 60) == [0, 2, 1, -1, 60]
    assert throttle(client, key, 1, 1, 60, 3) == [1, 2, 1, -1, 60]
    pipeline = client.pipeline(transaction=False)
    for _ in range(200):
        pipeline.execute_command("CL.THROTTLE", f"piped{protocol}", 149, 1, 60)
    limited = [reply[0] for reply in pipeline.execute()]
    assert limited == [0] * 150 + [1] * 50, limited
    try:
        throttle(client, key, "x", 1, 60)
        raise SystemExit("an error was expected")
    except redis.ResponseError as error:
        assert str(error) == "Cell error: Store error: Couldn't parse as integer: x", error
    assert client.info()["redis_version"].startswith("7.")
    assert client.client_getname() in (b"tests", "tests")
    assert "cl.throttle" in client.command()
    client.close()


async def concurrently():
    client = redis.asyncio.Redis(port=PORT)
    replies = await asyncio.gather(*(throttle(client, "async", 19, 1, 60) for _ in range(50)))
    assert sum(reply[0] == 0 for reply in replies) == 20
    await client.aclose()


asyncio.run(concurrently())
