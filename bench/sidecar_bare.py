"""Serve a bare Starlette route as the limit of the sidecar's calls.

It runs behind the server that the sidecar uses.
"""

import asyncio
import logging

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from rink.sidecar.listeners import Address, listen, serve


async def answer(_):
    return JSONResponse({"held": False})


async def main():
    listener = listen(Address("127.0.0.1", 0))
    print(f"listens at 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await serve(Starlette(routes=[Route("/", answer)]), listener, asyncio.Event())


logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
asyncio.run(main())
