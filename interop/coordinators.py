"""Clients that meet at etcd and at ZooKeeper: one line for all, first come, first served."""

import os
import shutil
import socket
import subprocess
import tempfile

import cases
from cases import MUTEX, PERMIT, READ, WRITE
from peer import until

HERE = os.path.dirname(os.path.abspath(__file__))
# What a session or lease has to live on when its process is dead, in seconds.
SESSION = 2
# How soon a waiter must hold after a release, in ms.
AT_ONCE = 100
JARS = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
ETCD_SERVER = os.environ.get("DISTLOCK_ETCD", "etcd")
ETCDCTL = os.environ.get("DISTLOCK_ETCDCTL", "etcdctl")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """A private server."""

    def start(self, command, ready):
        log = open(os.path.join(self.dir, "server.log"), "w")
        self.process = subprocess.Popen(command, cwd=self.dir, stdout=log, stderr=log)
        until(ready, "the server to answer")

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Etcd(Started):
    """One member with short elections, whose smallest lease is a second."""

    scheme = "etcd"

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="distlock-interop-")
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.address = client.removeprefix("http://")
        words = ["--data-dir", "data", "--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        words += ["--heartbeat-interval", "50", "--election-timeout", "300"]
        self.url = f"etcd://{self.address}/"
        self.start([ETCD_SERVER, *words], lambda: self.ctl("endpoint", "health").returncode == 0)

    def ctl(self, *words):
        env = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.run([ETCDCTL, "--endpoints", self.address, *words], capture_output=True, text=True, env=env)

    def contenders(self, key):
        return len(self.ctl("get", "--prefix", "--keys-only", f"{key}/").stdout.split())


class ZooKeeper(Started):
    """One server with ticks of 200 ms."""

    scheme = "zk"

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="distlock-interop-")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        with open(os.path.join(self.dir, "zoo.cfg"), "w") as config:
            config.write(
                f"tickTime=200\ninitLimit=10\nsyncLimit=5\nmaxSessionTimeout=60000\ndataDir={self.dir}/data\nclientPort={port}\n"
                "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,dump\n"
            )
        self.url = f"zk://{self.address}/"
        server = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        java = ["java", "-Xmx96m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", os.environ.get("DISTLOCK_ZOOKEEPER_JARS", JARS)]
        self.start([*java, server, "zoo.cfg"], lambda: "Mode:" in self.word("srvr"))

    def word(self, word):
        try:
            with socket.create_connection(self.address.split(":"), timeout=5) as stream:
                stream.sendall(word.encode())
                return b"".join(iter(lambda: stream.recv(65536), b"")).decode()
        except OSError:
            return ""

    def contenders(self, key):
        return sum(f"/{key}/" in line for line in self.word("dump").splitlines())


def share_a_line(run, name, start, kinds, nodes=1, query=""):
    """The rows of one client. `start` gives a new process of it, with sessions as short as its argument says; a waiter of ours
    has so many `nodes` in line."""
    sessions = {"zk": lambda seconds: f"session_timeout={seconds}s{query}", "etcd": lambda seconds: query}[run.server.scheme]
    ours, theirs = run.ours(sessions(30)), start(30)
    exclusive = [kind for kind in kinds if kind is not READ]
    run.both(name, ours, theirs, "refused, waits, hand-off", cases.hands_over, AT_ONCE, kinds=exclusive)
    for a, b in ((ours, theirs), (theirs, ours)):
        who = f"{a.name} and {b.name}"
        run.row(name, f"mutex: {who} in one line", cases.keeps_the_order, run.server, a, b, run.key("line"), nodes)
        run.row(name, f"mutex: {who}: who gives up is out of the way", cases.leaves_the_queue, run.server, a, b, run.key("gave-up"))
        if READ in kinds:
            run.row(name, f"read/write: {who} share", cases.shares_reads, a, b, run.key("rw"))
        if PERMIT in kinds:
            run.row(name, f"permits: {who} share", cases.shares_permits, a, b, run.key("permits"))
    for a, b in ((start(SESSION), ours), (run.ours(sessions(SESSION)), theirs)):
        keys = [(run.key("death", kind.name), kind, kind) for kind in exclusive]
        for kind, check in cases.survives_death(a, b, keys, SESSION * 1000):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


# Ours stand in kazoo's line as well.
BRIDGE = {"nodes": 2, "query": "&bridge=kazoo"}


def kazoo(run, name, python):
    """Under Curator's names; and as it is, with our bridge."""
    command = lambda seconds, names: [python, os.path.join(HERE, "python", "kazoo_lock.py"), run.server.address, str(seconds), names]
    share_a_line(run, name, lambda seconds: run.start(name, command(seconds, "curator")), [MUTEX])
    start = lambda seconds: run.start(name, command(seconds, "kazoo"))
    share_a_line(run, f"{name}, as it is", start, [MUTEX], **BRIDGE)


def curator(run, name, classpath):
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath]
    start = lambda seconds: run.start(name, [*java, "Curator", run.server.address, str(seconds * 1000)])
    share_a_line(run, name, start, [MUTEX, WRITE, READ, PERMIT])
    share_a_line(run, f"{name}, with the bridge to kazoo", start, [MUTEX], **BRIDGE)


def go_concurrency(run, name, program):
    share_a_line(run, name, lambda seconds: run.start(name, [program, run.server.address, str(seconds)]), [MUTEX])


def jetcd(run, name, classpath):
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classpath]
    start = lambda seconds: run.start(name, [*java, "Jetcd", f"http://{run.server.address}", str(seconds)])
    share_a_line(run, name, start, [MUTEX])
