"""A redis-py client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input,
answers on standard output, in whatever order they get done. Argument: the server's URL."""

import itertools
import json
import sys
import threading

import redis
from redis.exceptions import LockError

client = redis.Redis.from_url(sys.argv[1])
output = threading.Lock()
holds = {}
numbers = itertools.count(1)


def acquire(ask):
    lock = client.lock(ask["key"], timeout=ask["ttl_ms"] / 1000, sleep=0.05, thread_local=False)
    wait = ask["wait_ms"]
    blocking = {"blocking": False} if wait == 0 else {"blocking_timeout": None if wait is None else wait / 1000}
    if not lock.acquire(**blocking):
        return {"answer": "failed", "kind": "busy" if wait == 0 else "timeout", "message": "not obtained"}
    number = next(numbers)
    holds[number] = lock
    return {"answer": "granted", "hold": number}


def perform(request):
    if request["do"] == "acquire":
        return acquire(request)
    try:
        if request["do"] == "held":
            return {"answer": "yes" if holds[request["hold"]].owned() else "no"}
        if request["do"] == "extend":
            holds[request["hold"]].extend(request["ttl_ms"] / 1000, replace_ttl=True)
        else:
            holds.pop(request["hold"]).release()
    except LockError:
        return {"answer": "no"}
    return {"answer": "yes"}


def serve(request):
    try:
        answer = perform(request)
    except redis.RedisError as error:
        answer = {"answer": "failed", "kind": "unavailable", "message": repr(error)}
    with output:
        print(json.dumps({"id": request["id"], **answer}), flush=True)


for line in sys.stdin:
    threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
