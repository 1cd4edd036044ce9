"""How threads have an event loop do something."""

import asyncio
import collections
import threading

from rink.in_loop import in_loop, soon_in_loop


def test_thousands_of_calls_from_a_thread_wake_a_busy_loop_a_few_times():
    """Each wake costs the thread the interpreter: ten thousand took longer than a lease lasts."""

    async def main():
        loop, done, wakes = asyncio.get_running_loop(), [], []
        made, is_whole = loop.call_soon_threadsafe, asyncio.Event()

        def counted(*args):
            wakes.append(args)
            return made(*args)

        def told(number):
            done.append(number)
            if number == 9_999:
                is_whole.set()

        def many():
            for number in range(10_000):
                in_its_loop[number](number)

        in_its_loop = [in_loop(told) for _ in range(10_000)]
        loop.call_soon_threadsafe = counted
        thread = threading.Thread(target=many)
        thread.start()
        for _ in iter(is_whole.is_set, True):  # busy all the while
            await asyncio.sleep(0)
        thread.join()
        return done, len(wakes)

    done, wakes = asyncio.run(main())
    assert done == list(range(10_000))
    assert wakes < 1000


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


def test_what_threads_ask_for_by_the_thousand_is_done_with_few_wakes_of_the_loop_and_after_the_last():
    """Also what is asked for while the loop carries: nothing waits for a wake that nobody gives."""

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
