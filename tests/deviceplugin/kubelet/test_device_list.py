"""The kubelet follows the list of fake devices."""

import asyncio

from deviceplugin.kubelet.session import FakeDevices


async def test_a_follower_gets_the_list_and_then_each_change() -> None:
    devices = FakeDevices()
    following = devices.follow()
    first = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    assert not first.done()
    devices.show((("u0", True),))
    assert await asyncio.wait_for(first, 5) == (("u0", True),)
    devices.show((("u0", False),))
    assert await asyncio.wait_for(anext(following), 5) == (("u0", False),)
    assert devices.now == (("u0", False),)


async def test_the_same_list_again_is_no_news() -> None:
    devices = FakeDevices()
    devices.show((("u0", True),))
    following = devices.follow()
    await anext(following)
    again = asyncio.ensure_future(anext(following))
    devices.show((("u0", True),))
    await asyncio.sleep(0)
    assert not again.done()
    devices.show(())
    assert await asyncio.wait_for(again, 5) == ()


async def test_a_follower_that_is_slow_gets_the_newest() -> None:
    devices = FakeDevices()
    devices.show((("u0", True),))
    following = devices.follow()
    await anext(following)
    devices.show((("u1", True),))
    devices.show((("u2", True),))
    assert await asyncio.wait_for(anext(following), 5) == (("u2", True),)
