"""Clients that share a lock on a majority of five servers; and a cluster of three."""

import os
import subprocess

import cases
from cases import FAIR, MUTEX, PERMIT, READ, WRITE
from coordinators import free_port
from peer import Server, until

HERE = os.path.dirname(os.path.abspath(__file__))
# What a lock has to live on when its process is dead, in ms.
LEASE = 2000
# Nobody tells the others of a release: each asks at a pace of its own.
POLL = 1000


class Five:
    """Servers that know nothing of each other, in which nobody has ever locked: they need nobody to vouch for them."""

    def __init__(self):
        self.servers = [Server() for _ in range(5)]
        self.nodes = [f"127.0.0.1:{server.port}" for server in self.servers]
        self.url = f"redlock://{','.join(self.nodes)}"
        self.dir = self.servers[0].dir

    def lose(self, count):
        for server in self.servers[-count:]:
            server.process.kill()

    def stop(self):
        for server in self.servers:
            server.stop()


class Cluster:
    """Three masters without replicas."""

    def __init__(self):
        modes = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000"]
        # The bus port would be the port plus 10,000, which may be none.
        self.servers = [Server(*modes, "--cluster-port", str(free_port())) for _ in range(3)]
        self.nodes = [f"127.0.0.1:{server.port}" for server in self.servers]
        self.url = f"redis+cluster://{','.join(self.nodes)}"
        self.dir = self.servers[0].dir
        create = ["redis-cli", "--cluster", "create", *self.nodes, "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True)
        for server in self.servers:
            until(lambda: "cluster_state:ok" in server.cli("CLUSTER", "INFO"), "the cluster to be well")

    def stop(self):
        for server in self.servers:
            server.stop()


def redlock(run, name, command, env=(), scheme=""):
    """Shared with another Redlock client on five servers; then with two of them gone."""
    start = lambda: run.start(name, ["env", *env, *command, *(scheme + node for node in run.server.nodes)])
    ours, theirs = run.ours("node_timeout=1s"), start()
    run.both(name, ours, theirs, "hand-off on five", cases.hands_over, POLL)
    run.both(name, ours, theirs, "a late release takes nothing", cases.keeps_its_hands_off)
    run.row(name, f"mutex: {ours.name} -> {theirs.name}: renewed", cases.renews, ours, theirs, run.key("renew"), MUTEX, LEASE)
    run.server.lose(2)
    run.both(name, ours, theirs, "hand-off with two of five gone", cases.hands_over, 3 * POLL)
    for a, b in ((theirs, ours), (ours, start())):
        for kind, check in cases.survives_death(a, b, [(run.key("death"), MUTEX, MUTEX)], LEASE):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


def node_redlock(run, name, modules):
    redlock(run, name, ["node", os.path.join(HERE, "node", "redlock.mjs")], [f"NODE_HOME={modules}"])


def redsync(run, name, program):
    redlock(run, name, [program])


def rslock(run, name, program):
    redlock(run, name, [program], scheme="redis://")


def redisson_cluster(run, name, classpath):
    """Both are told by sharded publish/subscribe, so both wake the other at once."""
    address = ",".join(f"redis://{node}" for node in run.server.nodes)
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath]
    ours, theirs = run.ours("layout=redisson"), run.start(name, [*java, "Redisson", address, str(LEASE)])
    run.both(name, ours, theirs, "hand-off", cases.hands_over, 100, kinds=(MUTEX, FAIR, WRITE, PERMIT))
    run.both(name, ours, theirs, "renewed by its watchdog", cases.renews, LEASE, kinds=(MUTEX, FAIR))
    run.both(name, ours, theirs, "a late release takes nothing", cases.keeps_its_hands_off)
    for a, b in ((ours, theirs), (theirs, ours)):
        run.row(name, f"read/write: {a.name} and {b.name} share", cases.shares_reads, a, b, run.key("rw"))
    for kind, check in cases.survives_death(theirs, ours, [(run.key("death"), MUTEX, MUTEX), (run.key("death"), READ, WRITE)], LEASE):
        run.row(name, f"{kind.name}: {theirs.name} dies, {ours.name} takes over", check)
