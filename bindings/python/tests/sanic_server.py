"""Applications of Sanic on its own server, in the event loop of a test."""

import itertools
import socket

import aiohttp
from sanic import Sanic

# Sanic adapts its classes to an application as it starts, and expects one in a process otherwise.
Sanic.test_mode = True

names = (f"service_{number}" for number in itertools.count())


def application():
    """Return a new application."""
    return Sanic(next(names), configure_logging=False)


async def serve(app):
    """Serve an application on a free port; return the server and its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = await app.create_server(sock=listener, return_asyncio_server=True, access_log=False)
    await server.startup()
    await server.start_serving()
    return server, f"http://127.0.0.1:{listener.getsockname()[1]}/"


async def stop(server):
    await server.before_stop()
    await server.close()
    for connection in server.connections:
        connection.close_if_idle()
    await server.after_stop()


async def request(method, url, headers):
    async with (
        aiohttp.ClientSession(skip_auto_headers=["accept", "user-agent"]) as session,
        session.request(method, url, headers=headers) as response,
    ):
        return response.status, response.headers, await response.text()
