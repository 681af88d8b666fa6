"""A kazoo client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input, answers on
standard output, in whatever order they get done. Arguments: the server, the session timeout in seconds, and whose names
its nodes have: curator's or kazoo's."""

import itertools
import json
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, LockTimeout
from kazoo.recipe.lock import Lock


class CuratorNamed(Lock):
    """kazoo's lock under names that Curator and distlock count as contenders."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


LOCKS = {"curator": CuratorNamed, "kazoo": Lock}
client = KazooClient(hosts=sys.argv[1], timeout=float(sys.argv[2]))
client.start()
output = threading.Lock()
holds = {}
numbers = itertools.count(1)


def acquire(ask):
    lock = LOCKS[sys.argv[3]](client, "/" + ask["key"])
    wait = ask["wait_ms"]
    try:
        got = lock.acquire(blocking=False) if wait == 0 else lock.acquire(timeout=None if wait is None else wait / 1000)
    except LockTimeout:
        got = False
    if not got:
        return {"answer": "failed", "kind": "busy" if wait == 0 else "timeout", "message": "not obtained"}
    number = next(numbers)
    holds[number] = lock
    return {"answer": "granted", "hold": number}


def perform(request):
    if request["do"] == "acquire":
        return acquire(request)
    lock = holds[request["hold"]]
    held = client.exists(f"{lock.path}/{lock.node}") is not None
    if request["do"] == "release":
        held = bool(holds.pop(request["hold"]).release()) and held
    return {"answer": "yes" if held else "no"}


def serve(request):
    try:
        answer = perform(request)
    except KazooException as error:
        answer = {"answer": "failed", "kind": "unavailable", "message": repr(error)}
    with output:
        print(json.dumps({"id": request["id"], **answer}), flush=True)


for line in sys.stdin:
    threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
