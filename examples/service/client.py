#!/usr/bin/env python3
"""Holds a lock of a distlock service while a command runs, and stops the command if the lock is lost.

    client.py URL KEY COMMAND [ARG…]

One file, no dependencies: copy it. The lease is DISTLOCK_TTL (30s); the token, if the service
asks for one, is read from DISTLOCK_TOKEN_FILE.
Exit code: the command's own; 75 if the lock is busy for 10 s, 79 if it was lost while the command ran.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid


class Busy(Exception):
    pass


class Lost(Exception):
    pass


class Lock:
    """A lease. It is held until `deadline`, by this process's own clock, however the network is."""

    def __init__(self, url, key, ttl="30s", wait="10s", label=None):
        self.url = urllib.parse.urlsplit(url)
        self.path = "/v1/locks/" + urllib.parse.quote(key, safe="")
        self.lost = threading.Event()
        self.stopped = threading.Event()
        token_file = os.environ.get("DISTLOCK_TOKEN_FILE")
        self.token = open(token_file).read().strip() if token_file else None
        # The same request again, after a lost answer, gets the same lease.
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"ttl": ttl, "wait": wait, "label": label or os.path.basename(sys.argv[0])}
        for attempt in range(3):
            try:
                status, lease, sent = self._post("acquire", body, headers)
            except OSError:
                if attempt == 2:
                    raise
                continue
            if status == 409:
                raise Busy(lease["detail"])
            if status != 200:
                raise RuntimeError(f"{status}: {lease.get('detail')}")
            break
        self._granted(lease, sent)
        self.token_number = lease["token"]
        threading.Thread(target=self._keep, daemon=True).start()

    def _post(self, verb, body, headers={}):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.netloc, timeout=75)
        headers = {"Content-Type": "application/json", **headers}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        sent = time.monotonic()
        try:
            connection.request("POST", self.path + "/" + verb, json.dumps(body), headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read()), sent
        finally:
            connection.close()

    def _granted(self, lease, sent):
        self.handle = lease["handle"]
        self.ttl = lease["ttl_ms"] / 1000
        # Counted from before the request was sent, so that it is never longer than the service keeps the lock.
        self.deadline = sent + (lease["answered_after_ms"] + lease["valid_for_ms"]) / 1000

    def _keep(self):
        """Renews at a third of the lease; what cannot be renewed in time is lost."""
        pause = self.ttl / 3
        while not self.stopped.wait(min(pause, max(0, self.deadline - time.monotonic()))):
            if time.monotonic() >= self.deadline:
                self.lost.set()
                return
            try:
                status, lease, sent = self._post("renew", {"handle": self.handle})
            except OSError:
                status, lease, sent = 0, None, None
            if status == 200:
                self._granted(lease, sent)
                pause = self.ttl / 3
            elif status == 410:
                self.lost.set()
                return
            else:
                # Not known: it is held until the deadline, so ask again soon.
                pause = min(1, self.ttl / 20)

    def release(self):
        self.stopped.set()
        status, body, _ = self._post("release", {"handle": self.handle})
        if status == 410:
            raise Lost(body["detail"])


def main():
    url, key, *command = sys.argv[1:]
    try:
        lock = Lock(url, key, ttl=os.environ.get("DISTLOCK_TTL", "30s"))
    except Busy as e:
        print(f"busy: {e}", file=sys.stderr)
        return 75
    print(f"held, fencing token {lock.token_number}", file=sys.stderr, flush=True)
    child = subprocess.Popen(command, env={**os.environ, "DISTLOCK_TOKEN": str(lock.token_number)})
    while child.poll() is None:
        if lock.lost.wait(0.05):
            child.kill()
            child.wait()
            print("lost: the command was stopped", file=sys.stderr)
            return 79
    lock.release()
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
