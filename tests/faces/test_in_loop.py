"""Check how threads have an event loop do something."""

import asyncio
import collections
import threading

import pytest

from rink._asyncio import in_loop, soon_in_loop


def test_thousands_of_calls_from_threads_wake_the_loop_once():
    """Each wake costs the thread the interpreter: ten thousand cost a lease."""

    async def main():
        loop, done, wakes = asyncio.get_running_loop(), [], []
        made, is_whole = loop.call_soon_threadsafe, asyncio.Event()

        def counted(*args):
            wakes.append(args)
            return made(*args)

        def tell(first, last):
            thread = threading.Thread(
                target=lambda: [in_its_loop[number](number) for number in range(first, last)]
            )
            thread.start()
            thread.join()  # the loop does nothing meanwhile

        def told(number):
            if not done:
                tell(9_000, 10_000)
            done.append(number)
            if number == 9_999:
                is_whole.set()

        in_its_loop = [in_loop(told) for _ in range(10_000)]
        loop.call_soon_threadsafe = counted
        tell(0, 9_000)
        await is_whole.wait()
        return done, len(wakes)

    assert asyncio.run(main()) == (list(range(10_000)), 1)


def test_loop_whose_calls_a_signal_handler_interrupts_hears_the_next_ones():
    """A handler that raises ends asyncio.run, which still waits to clean up."""
    heard = []

    def interrupted():
        raise SystemExit

    async def main():
        calls = [in_loop(one) for one in (interrupted, lambda: heard.append("same turn"))]
        for call in calls:
            call()
        try:
            await asyncio.Event().wait()
        finally:
            is_heard = asyncio.Event()
            in_loop(is_heard.set)()
            await asyncio.wait_for(is_heard.wait(), 20.0)
            heard.append("clean-up")

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert heard == ["same turn", "clean-up"]


def test_call_that_raises_keeps_no_other_from_being_made():
    async def main():
        told, is_heard = [], asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        in_loop([].remove)("nothing")
        in_loop(is_heard.set)()
        await asyncio.wait_for(is_heard.wait(), 20.0)
        return [type(about["exception"]) for about in told]

    assert asyncio.run(main()) == [ValueError]


def test_calls_of_a_closed_loop_are_not_kept():
    async def main():
        return in_loop(print)

    call = asyncio.run(main())
    for _ in range(100):
        call("never")
    assert not call.func.__self__._calls


def test_call_that_comes_as_the_loop_falls_asleep_is_made():
    async def main():
        heard = []
        for number in range(2_000):
            is_heard = asyncio.Event()

            def hear(number=number, is_heard=is_heard):
                heard.append(number)
                is_heard.set()

            thread = threading.Thread(target=in_loop(hear))
            thread.start()
            for _ in range(number % 5):
                await asyncio.sleep(0)
            await asyncio.wait_for(is_heard.wait(), 20.0)
            thread.join()
        return heard

    assert asyncio.run(main()) == list(range(2_000))


def test_soon_in_loop_runs_after_the_last_call_with_few_wakes():
    """No call waits for a wake, also if it comes while the loop carries."""

    async def main():
        loop, done, waiting, wakes = asyncio.get_running_loop(), [], collections.deque(), []
        made, is_whole = loop.call_soon_threadsafe, asyncio.Event()

        def counted(*args):
            wakes.append(args)
            return made(*args)

        def carry():
            while waiting:
                done.append(waiting.popleft())
            if len(done) == 20_000:
                is_whole.set()

        call, loop.call_soon_threadsafe = soon_in_loop(carry), counted

        def many(numbers):
            for number in numbers:
                waiting.append(number)
                call()

        many(range(1000))
        assert (done, len(wakes)) == ([], 1)
        await asyncio.sleep(0)
        thread = threading.Thread(target=many, args=(range(1000, 20_000),))
        thread.start()
        await is_whole.wait()
        thread.join()
        return done

    assert asyncio.run(main()) == list(range(20_000))
