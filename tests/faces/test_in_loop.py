"""How threads have an event loop do something."""

import asyncio
import collections
import threading

from rink.in_loop import soon_in_loop


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
