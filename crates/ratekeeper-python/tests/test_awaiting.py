"""What is awaited: as `asyncio` takes it, and a TypeError for who forgets the `await`."""

from __future__ import annotations

import asyncio

import pytest
from conftest import Backend

from ratekeeper import Decision, Limiter, Policies, PolicyLimiter, Rule, Store


def limiter_on(backend: Backend, quota: str = "100/1h") -> Limiter:
    return Limiter(backend.store(), Rule("r", quota))


async def test_a_forgotten_await_is_an_error_and_no_pass(backend: Backend) -> None:
    limiter = limiter_on(backend)
    policies = PolicyLimiter(backend.store(), Policies())
    for awaitable in (limiter.acheck("a"), limiter.auntil_allowed("a", 0.0), limiter.apeek("a"), policies.acheck("s", "k")):
        with pytest.raises(TypeError, match="has to be awaited"):
            if not awaitable:
                pytest.fail("it has no answer yet")
        assert (await awaitable).allowed
    with pytest.raises(TypeError, match="has to be awaited"):
        bool(Store.memory().aping())


async def test_asyncio_takes_it_for_a_future(backend: Backend) -> None:
    limiter = limiter_on(backend)
    answers: list[Decision] = list(await asyncio.gather(*(limiter.acheck("a") for _ in range(5))))
    answers.append(await asyncio.wait_for(limiter.acheck("a"), 10.0))
    answers.append(await asyncio.ensure_future(limiter.acheck("a")))
    answers.append(await asyncio.shield(limiter.acheck("a")))
    done, _ = await asyncio.wait([asyncio.ensure_future(limiter.acheck("a"))])
    answers += [task.result() for task in done]
    assert all(answers) and min(answer.verdicts[0].remaining for answer in answers) == 91


async def test_it_can_be_awaited_again(backend: Backend) -> None:
    awaitable = limiter_on(backend).acheck("a")
    assert await awaitable is await awaitable


async def test_who_is_cancelled_is_told_so(redis_backend: Backend) -> None:
    limiter = limiter_on(redis_backend)

    async def ask() -> None:
        await limiter.auntil_allowed("a", 60.0)

    assert redis_backend.server is not None
    redis_backend.client().client_pause(300)
    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await limiter.acheck("a")
