"""The floor: a client that only POSTs bindings, as fast as the API server takes them. Decides nothing.

    python -m tests.perf.bare URL CA_FILE IN_FLIGHT NODES     (the token comes in the environment, as TOKEN)

Lists the pods that have no node and binds the i-th to node i modulo NODES.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import uvloop

from tests.perf.world import PODS, Server, session


class _Meta(msgspec.Struct):
    name: str
    uid: str


class _Pod(msgspec.Struct):
    metadata: _Meta


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _Pods(msgspec.Struct):
    items: list[_Pod]
    metadata: _ListMeta


async def run(server: Server, in_flight: int, nodes: int) -> None:
    """Bind everything."""
    headers = {"Content-Type": "application/json"}
    async with session(server, in_flight) as http:
        pods: list[_Pod] = []
        query = {"fieldSelector": "spec.nodeName=", "limit": "500"}
        while True:
            async with http.get(PODS, params=query) as answer:
                page = msgspec.json.decode(await answer.read(), type=_Pods)
            pods += page.items
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        queue = iter(enumerate(pods))

        async def work() -> None:
            for number, pod in queue:
                name, uid = pod.metadata.name, pod.metadata.uid
                body = (
                    f'{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{name}","uid":"{uid}"}},'
                    f'"target":{{"apiVersion":"v1","kind":"Node","name":"node-{number % nodes:05}"}}}}'
                ).encode()
                async with http.post(f"{PODS}/{name}/binding", data=body, headers=headers) as answer:
                    text = await answer.read()
                    if answer.status >= 300:
                        raise RuntimeError(f"binding {name}: {answer.status}: {text[:300]!r}")

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(work())
    await asyncio.Event().wait()  # until we are measured and ended


if __name__ == "__main__":
    url, ca_file, in_flight_text, nodes_text = sys.argv[1:]
    uvloop.run(run(Server(url, "", os.environ.get("TOKEN", ""), ca_file or None), int(in_flight_text), int(nodes_text)))
