"""Shares locks between distlock and the real clients of others, and prints what came of it.

Usage: driver.py WORKER (redis-py=PYTHON | spring=CLASSPATH | redisson-VERSION=CLASSPATH | kazoo=PYTHON | curator=CLASSPATH |
    go-concurrency=PROGRAM | jetcd=CLASSPATH | redisson-cluster-VERSION=CLASSPATH | node-redlock=MODULES |
    redsync=PROGRAM | rslock=PROGRAM)…
"""

import os
import sys
import traceback

import cases
import coordinators
import redlock
from cases import FAIR, LAST_PERMIT, MUTEX, PERMIT, READ, WRITE
from peer import Peer, Server

HERE = os.path.dirname(os.path.abspath(__file__))
WATCHDOG = 2000
# redis-py polls; ours asks again at a pace of its own, as redis-py does not tell of releases.
POLL = 1000


class Run:
    def __init__(self, worker, server, rows=None):
        self.worker = worker
        self.server = server
        self.log = open(os.path.join(self.server.dir, "log"), "w+")
        self.rows = [] if rows is None else rows
        self.peers = []
        self.number = 0

    def start(self, name, command):
        self.peers.append(Peer(name, command, self.log))
        return self.peers[-1]

    def ours(self, query):
        self.number += 1
        events = os.path.join(self.server.dir, f"events-{self.number}")
        url = f"{self.server.url}?namespace=&{query}"
        words = ["--url", url, "--process", str(self.number), "--events", events, "--store", "/nonexistent"]
        return self.start("distlock", [self.worker, *words])

    def row(self, client, what, check, *args):
        try:
            said, good = check(*args), True
        except Exception as error:
            said, good = str(error) or type(error).__name__, False
            if os.environ.get("DISTLOCK_INTEROP_TRACE"):
                traceback.print_exc()
        self.rows.append((client, what, good, said))
        print(f"{'ok ' if good else 'RED'} {client}: {what}  {said}", flush=True)

    def key(self, *words):
        self.number += 1
        return ":".join(["interop", *words, str(self.number)])

    def both(self, client, a, b, what, check, *args, kinds=(MUTEX,)):
        """A row for each kind, with the clients in either role."""
        for kind in kinds:
            for x, y in ((a, b), (b, a)):
                key = self.key(kind.name)
                self.row(client, f"{kind.name}: {x.name} -> {y.name}: {what}", check, x, y, key, kind, *args)

    def end(self):
        for peer in self.peers:
            if peer.process.poll() is None:
                peer.kill()
        self.server.stop()


def redis_py(run, name, python):
    start = lambda: run.start(name, [python, os.path.join(HERE, "python", "redis_py.py"), f"redis://127.0.0.1:{run.server.port}"])
    for value in ("owner", "hex"):
        query = f"layout=string&value={value}" if value != "owner" else "layout=string"
        ours, theirs = run.ours(query), start()
        client = f"{name}, value={value}"
        run.both(client, ours, theirs, "hand-off", cases.hands_over, POLL)
        run.both(client, ours, theirs, "a late release takes nothing", cases.keeps_its_hands_off)
    run.row(name, f"mutex: {theirs.name} extends", cases.extends, ours, theirs, run.key("extend"))
    run.row(name, f"mutex: {ours.name} -> {theirs.name}: renewed", cases.renews, ours, theirs, run.key("renew"), MUTEX, WATCHDOG)
    for a, b in ((theirs, ours), (ours, start())):
        for kind, check in cases.survives_death(a, b, [(run.key("death"), MUTEX, MUTEX)], WATCHDOG):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


def spring(run, name, classpath):
    """Its registry's key is our prefix."""
    address = ["127.0.0.1", str(run.server.port), "spring"]
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath, "Spring", *address]
    start = lambda: run.start(name, java)
    ours, theirs = run.ours("layout=string&prefix=spring:"), start()
    run.both(name, ours, theirs, "hand-off", cases.hands_over, POLL)
    run.both(name, ours, theirs, "renewed", cases.renews, WATCHDOG)
    run.both(name, ours, theirs, "a late release takes nothing", cases.keeps_its_hands_off)
    for a, b in ((theirs, ours), (ours, start())):
        for kind, check in cases.survives_death(a, b, [(run.key("death"), MUTEX, MUTEX)], WATCHDOG):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


def redisson(run, name, classpath):
    address = f"redis://127.0.0.1:{run.server.port}"
    start = lambda: run.start(name, ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath, "Redisson", address, str(WATCHDOG)])
    ours, theirs = run.ours("layout=redisson"), start()
    kinds = (MUTEX, FAIR, WRITE, PERMIT)
    run.both(name, ours, theirs, "hand-off", cases.hands_over, 100, kinds=(*kinds, LAST_PERMIT))
    run.both(name, ours, theirs, "renewed by its watchdog", cases.renews, WATCHDOG, kinds=(MUTEX, FAIR, WRITE))
    run.both(name, ours, theirs, "a late release takes nothing", cases.keeps_its_hands_off, kinds=(MUTEX, WRITE))
    for a, b in ((ours, theirs), (theirs, ours)):
        who = f"{a.name} and {b.name}"
        run.row(name, f"read/write: {who} share", cases.shares_reads, a, b, run.key("rw"))
        run.row(name, f"read/write: {who}: leases", cases.a_reader_outlives_another, a, b, run.key("rw-lease"))
        run.row(name, f"permits: {who} share", cases.shares_permits, a, b, run.key("permits"))
        run.row(name, f"fair: {who} in one queue", cases.shares_the_queue, run.server, a, b, run.key("queue"))
        run.row(name, f"fair: {who}: who gives up is out of the way", cases.leaves_the_queue, run.server, a, b, run.key("gave-up"))
    run.row(name, "mutex: forceUnlock is told to distlock", cases.tells_of_force, ours, theirs, run.key("force"))
    fenced = run.ours("layout=redisson&fenced=redisson")
    run.row(name, "fenced: tokens of both grow", cases.tokens_grow, fenced, theirs, run.key("fenced"))
    run.row(name, "fair: a dead waiter of distlock's is passed", cases.passes_a_dead_waiter, run.server, theirs, fenced, ours, run.key("dead-ours"))
    another = start()
    run.row(name, "fair: a dead waiter of Redisson's is passed", cases.passes_a_dead_waiter, run.server, ours, theirs, ours, run.key("dead-theirs"))
    for a, b in ((another, ours), (ours, start())):
        keys = [(run.key("death", kind.name), kind, kind) for kind in kinds] + [(run.key("death", "read"), READ, WRITE)]
        for kind, check in cases.survives_death(a, b, keys, WATCHDOG):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


# By how a client's name begins: at what it meets us, and what is tried.
CLIENTS = {
    "redis-py": (Server, redis_py),
    "spring": (Server, spring),
    "redisson-cluster": (redlock.Cluster, redlock.redisson_cluster),
    "redisson": (Server, redisson),
    "node-redlock": (redlock.Five, redlock.node_redlock),
    "redsync": (redlock.Five, redlock.redsync),
    "rslock": (redlock.Five, redlock.rslock),
    "kazoo": (coordinators.ZooKeeper, coordinators.kazoo),
    "curator": (coordinators.ZooKeeper, coordinators.curator),
    "go-concurrency": (coordinators.Etcd, coordinators.go_concurrency),
    "jetcd": (coordinators.Etcd, coordinators.jetcd),
}


def main():
    rows = []
    for word in sys.argv[2:]:
        name, _, how = word.partition("=")
        server, check = next(found for start, found in CLIENTS.items() if name.startswith(start))
        run = Run(sys.argv[1], server(), rows)
        try:
            check(run, name, how)
        finally:
            run.end()
    report(rows)


def report(rows):
    bad = [row for row in rows if not row[2]]
    width = max(len(f"{client}: {what}") for client, what, _, _ in rows)
    print()
    for client, what, good, said in rows:
        print(f"| {f'{client}: {what}':<{width}} | {'ok' if good else 'RED':<3} | {said}")
    print(f"{len(rows) - len(bad)} passed, {len(bad)} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
