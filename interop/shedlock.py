"""Shares ShedLock's table between distlock and ShedLock itself, and prints what came of it.

Usage: shedlock.py WORKER NAME CLASSPATH
"""

import sys
import time

import cases
from cases import MUTEX
from databases import MariaDb, Postgres
from driver import Run, report
from peer import settled

TTL = 2000
# Both ask again at a pace of their own.
POLL = 300


def extends(ours, theirs, key):
    """ShedLock extends; ours is refused for longer than the first lease."""
    held = theirs.acquire(key, MUTEX, ttl=1000)
    assert theirs.tell("extend", hold=held, ttl_ms=4000)["answer"] == "yes"
    time.sleep(2)
    assert ours.is_refused(key, MUTEX), "taken within the extension"
    theirs.release(held)
    ours.release(ours.acquire(key, MUTEX, wait=1000))
    return ""


def keeps_for_the_least_time(ours, theirs, key):
    """ShedLock's lockAtLeastFor keeps ours out after the release."""
    start = time.monotonic()
    held = settled(theirs.ask("acquire", key=key, ttl_ms=10_000, min_hold_ms=1500, wait_ms=0))["hold"]
    theirs.release(held)
    assert ours.is_refused(key, MUTEX), "taken within lockAtLeastFor"
    ours.release(ours.acquire(key, MUTEX, wait=5000))
    took = time.monotonic() - start
    assert took >= 1.4, f"{took:.1f} s of 1.5"
    return f"{took:.1f} s of 1.5"


def on(run, name, classpath):
    query = "layout=shedlock"
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Duser.timezone=UTC", "-cp", classpath, "ShedLock", run.server.jdbc]
    start = lambda: run.start("ShedLock", java)
    ours = run.ours(query)
    # The first of ours makes the table.
    ours.release(ours.acquire(run.key("first"), MUTEX))
    theirs = start()
    run.both(name, ours, theirs, "hand-off", cases.hands_over, POLL)
    run.row(name, "mutex: distlock renews", cases.renews, ours, theirs, run.key("renew"), MUTEX, TTL)
    run.row(name, "mutex: ShedLock extends", extends, ours, theirs, run.key("extend"))
    run.row(name, "mutex: lockAtLeastFor is respected", keeps_for_the_least_time, ours, theirs, run.key("least"))
    run.both(name, ours, theirs, "a late release takes nothing", keeps_its_hands_off)
    for a, b in ((theirs, ours), (ours, start())):
        for kind, check in cases.survives_death(a, b, [(run.key("death"), MUTEX, MUTEX)], TTL):
            run.row(name, f"{kind.name}: {a.name} dies, {b.name} takes over", check)


def keeps_its_hands_off(a, b, key, kind):
    """A's lease runs out, B takes it, A's late release takes nothing from B."""
    late = a.acquire(key, kind, ttl=500)
    held = b.acquire(key, kind, wait=5000)
    a.tell("release", hold=late)
    assert a.is_refused(key, kind), f"{a.name} took away what {b.name} holds"
    b.release(held)
    return ""


def main():
    worker, name, classpath = sys.argv[1:]
    rows = []
    for server in (Postgres(), MariaDb()):
        run = Run(worker, server)
        try:
            on(run, f"{name}, {type(server).__name__}", classpath)
        finally:
            run.end()
        rows += run.rows
    report(rows)


if __name__ == "__main__":
    main()
