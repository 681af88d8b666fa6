"""Programs that are driven over pipes with JSON lines, and the server that they meet at."""

import itertools
import json
import os
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE = 60


class Refused(Exception):
    """The lock was not obtained; the word says why."""


class Peer:
    """One client process. Requests are answered in any order; `ask` gives something to wait on."""

    def __init__(self, name, command, log):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.numbers = itertools.count(1)
        self.asked = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            reply = json.loads(line)
            reply["at"] = time.monotonic()
            self.asked.pop(reply["id"]).put(reply)
        for waiting in list(self.asked.values()):
            waiting.put({"answer": "failed", "kind": "dead", "message": "the process ended"})

    def ask(self, do, **words):
        number = next(self.numbers)
        answer = self.asked[number] = queue.Queue()
        self.process.stdin.write(json.dumps({"id": number, "do": do, **words}) + "\n")
        self.process.stdin.flush()
        return answer

    def tell(self, do, **words):
        """Asks and waits. Raises `Refused` for a refusal."""
        return settled(self.ask(do, **words))

    def acquiring(self, key, kind, ttl=30_000, wait=None, renew=False):
        return self.ask("acquire", key=key, mode=kind.mode, fifo=kind.fifo, ttl_ms=ttl, wait_ms=wait, renew=renew)

    def acquire(self, key, kind, **words):
        return settled(self.acquiring(key, kind, **{"wait": 20_000, **words}))["hold"]

    def is_refused(self, key, kind):
        """Whether a try finds the lock busy. A grant is given back."""
        try:
            hold = self.acquire(key, kind, wait=0)
        except Refused as refused:
            if refused.args[0] != "busy":
                raise
            return True
        self.tell("release", hold=hold)
        return False

    def release(self, hold):
        assert self.tell("release", hold=hold)["answer"] == "yes", f"{self.name} did not hold any more"

    def holds(self, hold):
        return self.tell("held", hold=hold)["answer"] == "yes"

    def kill(self):
        self.process.kill()
        self.process.wait()


def settled(answer, patience=PATIENCE):
    try:
        reply = answer.get(timeout=patience)
    except queue.Empty:
        raise AssertionError(f"no answer within {patience} s") from None
    if reply["answer"] == "failed":
        raise Refused(reply["kind"], reply["message"])
    return reply


def is_waiting(answer, seconds=0.3):
    """Whether no answer comes for that long."""
    try:
        reply = answer.get(timeout=seconds)
    except queue.Empty:
        return True
    answer.put(reply)
    return False


class Server:
    """A private redis-server on a loopback port."""

    def __init__(self, *options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/"
        self.dir = tempfile.mkdtemp(prefix="distlock-interop-")
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir, *options]
        self.process = subprocess.Popen([os.environ.get("DISTLOCK_REDIS_SERVER", "redis-server"), *words], stdout=subprocess.DEVNULL)
        until(lambda: self.cli("PING") == "PONG", "the server to answer")

    def cli(self, *words):
        run = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True)
        return run.stdout.strip()

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def until(condition, what, seconds=30):
    """Polls until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.01)
