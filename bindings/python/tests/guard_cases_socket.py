"""What services on a socket of asyncio have in common: responses that stay open, read by aiohttp."""

import asyncio

import aiohttp
from guard_cases import Service


class OpenResponse:
    """A response that a service on a socket has begun to send."""

    def __init__(self, service, name, session, response):
        self._service, self._name, self._session, self._response = service, name, session, response

    def close(self):
        self._service._released[self._name].set()
        self._end(read=True)

    def leave(self):
        self._end(read=False)

    def _end(self, *, read):
        async def end():
            if read:
                await self._response.read()
            self._response.close()
            await self._session.close()

        self._service._loop.run_until_complete(end())


class SocketService(Service):
    """It has the loop, the URL and the sessions of its clients, and events that let open responses end."""

    def open(self, method, headers):
        session, response = self._loop.run_until_complete(self._open(method, headers))
        return response.status, response.headers, OpenResponse(self, headers["x-open"], session, response)

    async def _open(self, method, headers):
        session = aiohttp.ClientSession()
        self._sessions.append(session)
        response = await session.request(method, self._url, headers=headers)
        assert await response.content.readexactly(4) == b"view"
        return session, response

    def peek(self, key, policy):
        # The server ends a request while its loop runs.
        self._loop.run_until_complete(asyncio.sleep(0.001))
        return self.memory.blocking.peek(key, policy)
