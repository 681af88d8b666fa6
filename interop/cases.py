"""What two clients that share a lock must do, each case for A and B in either role."""

import dataclasses
import statistics
import time

from peer import Refused, is_waiting, settled, until


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    mode: object
    fifo: bool = False
    watchdog: bool = True
    # How many hold it at once.
    places: int = 1


MUTEX = Kind("mutex", "mutex")
FAIR = Kind("fair", "mutex", fifo=True)
WRITE = Kind("write", "write")
READ = Kind("read", "read")
PERMIT = Kind("permits", {"slot": {"of": 2}}, watchdog=False, places=2)
# We make the count; it must not go with our permit while Redisson waits for it.
LAST_PERMIT = Kind("last permit", {"slot": {"of": 1}}, watchdog=False)

HAND_OFFS = 5


def fill(peer, key, kind, **words):
    return [peer.acquire(key, kind, **words) for _ in range(kind.places)]


def hands_over(a, b, key, kind, bound):
    """A holds, B is refused and waits, A releases, B holds soon; several times."""
    took = []
    for _ in range(HAND_OFFS):
        held = fill(a, key, kind)
        assert b.is_refused(key, kind), f"{b.name} took what {a.name} holds"
        waiting = b.acquiring(key, kind)
        assert is_waiting(waiting), f"{b.name} did not wait"
        start = time.monotonic()
        a.release(held.pop())
        granted = settled(waiting)
        took.append((granted["at"] - start) * 1000)
        for hold in held:
            a.release(hold)
        b.release(granted["hold"])
    median = statistics.median(took)
    assert median <= bound, f"median {median:.0f} ms, at most {bound}: {[round(t) for t in took]}"
    return f"{median:.1f} ms, slowest {max(took):.0f}"


def renews(a, b, key, kind, watchdog):
    """A holds for two and a half leases; B is refused all the time."""
    held = a.acquire(key, kind, ttl=watchdog, renew=True)
    end, tries = time.monotonic() + 2.5 * watchdog / 1000, 0
    while time.monotonic() < end:
        assert b.is_refused(key, kind), f"{b.name} took what {a.name} renews"
        tries += 1
        time.sleep(0.1)
    assert a.holds(held), f"{a.name} lost it"
    a.release(held)
    return f"{tries} refusals"


def survives_death(a, b, keys, ttl):
    """A dies with locks of several kinds (key, held, then wanted); B gets each when its lease has run out, and none
    while A lived. Gives a check for each."""
    for key, kind, _ in keys:
        fill(a, key, kind, ttl=ttl, renew=kind.watchdog)
    waiting = [b.acquiring(key, wanted) for key, _, wanted in keys]
    early = [not is_waiting(answer, 0.1) for answer in waiting]
    killed = time.monotonic()
    a.kill()
    for (_, kind, wanted), answer, soon in zip(keys, waiting, early):
        def check(answer=answer, soon=soon):
            assert not soon, f"{b.name} was granted while {a.name} was alive"
            granted = settled(answer)
            took = (granted["at"] - killed) * 1000
            assert took <= ttl + 2000, f"{took:.0f} ms for a lease of {ttl}"
            b.release(granted["hold"])
            return f"{took:.0f} ms of {ttl}"
        yield kind if kind is wanted else Kind(f"{kind.name}, then {wanted.name}", wanted.mode), check


def shares_reads(a, b, key):
    """Both read; neither may write; who waits to write gets it when the last reader left; then both are kept out."""
    one, two = a.acquire(key, READ), b.acquire(key, READ)
    assert a.is_refused(key, WRITE) and b.is_refused(key, WRITE), "a writer among readers"
    waiting = b.acquiring(key, WRITE)
    assert is_waiting(waiting), "a writer did not wait"
    b.release(two)
    assert is_waiting(waiting), "a writer did not wait for the other client's reader"
    start = time.monotonic()
    a.release(one)
    granted = settled(waiting)
    took = (granted["at"] - start) * 1000
    assert a.is_refused(key, READ), "a reader beside a writer"
    readers = [a.acquiring(key, READ), a.acquiring(key, READ), b.acquiring(key, READ)]
    assert all(is_waiting(reader, 0.1) for reader in readers), "a reader did not wait"
    b.release(granted["hold"])
    for reader, peer in zip(readers, (a, a, b)):
        hold = settled(reader)
        assert (hold["at"] - start) < 5, "a reader was not woken"
        peer.release(hold["hold"])
    assert took <= 100, f"{took:.0f} ms"
    return f"{took:.1f} ms"


def a_reader_outlives_another(a, b, key):
    """The long lease of one reader counts when the other, with a short one, leaves or lets it run out."""
    short, long = a.acquire(key, READ, ttl=700), b.acquire(key, READ, ttl=10_000)
    a.release(short)
    a.acquire(key, READ, ttl=700)
    time.sleep(1.0)
    assert a.is_refused(key, WRITE), "a writer beside a reader"
    b.release(long)
    a.release(a.acquire(key, WRITE, wait=2000))
    return ""


def shares_permits(a, b, key):
    """Two permits, one each; a third is refused to both."""
    for peer, other in ((a, b), (b, a)):
        one, two = peer.acquire(key, PERMIT), other.acquire(key, PERMIT)
        assert a.is_refused(key, PERMIT) and b.is_refused(key, PERMIT), "a third permit"
        waiting = other.acquiring(key, PERMIT)
        assert is_waiting(waiting), "a third permit"
        peer.release(one)
        other.release(settled(waiting, 5)["hold"])
        other.release(two)
    return ""


def shares_the_queue(server, a, b, key):
    """Waiters of both in one queue are granted in the order in which they came."""
    first = a.acquire(key, FAIR)
    waiting, order = [], []
    for number, peer in enumerate((b, a, b, a, a, b)):
        waiting.append((peer, peer.acquiring(key, FAIR)))
        until(lambda: server.cli("LLEN", f"redisson_lock_queue:{{{key}}}") == str(number + 1), "the queue to grow")
    assert a.is_refused(key, FAIR) and b.is_refused(key, FAIR), "a try passed the queue"
    start = time.monotonic()
    a.release(first)
    for peer, answer in waiting:
        granted = settled(answer, 10)
        order.append(granted["at"])
        peer.release(granted["hold"])
    assert order == sorted(order), "not in order"
    each = (order[-1] - start) * 1000 / len(order)
    assert each <= 100, f"{each:.0f} ms for each hand-off"
    assert server.cli("EXISTS", key, f"redisson_lock_queue:{{{key}}}", f"redisson_lock_timeout:{{{key}}}") == "0", "leftovers"
    return f"{each:.1f} ms each"


def keeps_the_order(server, a, b, key, nodes=1):
    """Waiters of both in one line are granted in the order in which they came, each soon after the one before. Each of
    ours has so many nodes."""
    places = lambda peer: nodes if peer.name == "distlock" else 1
    first = a.acquire(key, FAIR)
    waiting, order, standing = [], [], places(a)
    for peer in (b, a, b, b, a, a):
        waiting.append((peer, peer.acquiring(key, FAIR)))
        standing += places(peer)
        until(lambda: server.contenders(key) == standing, "the line to grow")
    standing -= places(a)
    start = time.monotonic()
    a.release(first)
    for peer, answer in waiting:
        granted = settled(answer, 10)
        order.append(granted["at"])
        assert server.contenders(key) >= standing, "two were granted"
        standing -= places(peer)
        peer.release(granted["hold"])
    assert order == sorted(order), "not in order"
    until(lambda: server.contenders(key) == 0, "the line to be empty")
    each = (order[-1] - start) * 1000 / len(order)
    return f"{each:.1f} ms each"


def passes_a_dead_waiter(server, a, doomed, b, key):
    """A holds; a waiter that is ahead dies; B, behind it, is granted all the same. Redisson gives a waiter up when the
    rest of the holder's lease and the wait that it asked for have passed, so both are short here."""
    queue = f"redisson_lock_queue:{{{key}}}"
    held = a.acquire(key, FAIR, ttl=3000, renew=True)
    doomed.acquiring(key, FAIR, wait=4000)
    until(lambda: server.cli("LLEN", queue) == "1", "the first waiter")
    waiting = b.acquiring(key, FAIR)
    until(lambda: server.cli("LLEN", queue) == "2", "the second waiter")
    doomed.kill()
    start = time.monotonic()
    a.release(held)
    granted = settled(waiting)
    took = granted["at"] - start
    assert took <= 15, f"{took:.1f} s"
    b.release(granted["hold"])
    return f"{took:.1f} s"


def leaves_the_queue(server, a, b, key):
    """A waiter that gave up is out of the other's way."""
    held = a.acquire(key, FAIR)
    try:
        b.acquire(key, FAIR, wait=400)
        raise AssertionError("granted")
    except Refused as refused:
        assert refused.args[0] == "timeout", refused
    waiting = a.acquiring(key, FAIR)
    assert is_waiting(waiting)
    a.release(held)
    granted = settled(waiting, 5)
    a.release(granted["hold"])
    return ""


def tells_of_force(ours, theirs, key):
    """Redisson's forceUnlock ends our hold; we are told within a second."""
    held = ours.acquire(key, MUTEX, renew=True)
    lost = ours.ask("lost", hold=held)
    assert is_waiting(lost)
    start = time.monotonic()
    assert theirs.tell("force", key=key)["answer"] == "yes"
    reply = lost.get(timeout=10)
    took = reply["at"] - start
    assert took <= 1, f"{took:.1f} s"
    return f"{took * 1000:.0f} ms, {reply['kind']}"


def tokens_grow(ours, theirs, key):
    """Tokens of both, taken in turn from the counter of the fenced lock, grow."""
    tokens = []
    for peer, mode in ((theirs, "fenced"), (ours, "mutex"), (theirs, "fenced"), (theirs, "fenced"), (ours, "mutex"), (ours, "mutex"), (theirs, "fenced")):
        granted = settled(peer.acquiring(key, Kind("fenced", mode), wait=2000))
        tokens.append(granted["token"])
        peer.release(granted["hold"])
    assert tokens == sorted(set(tokens)), tokens
    return f"{len(tokens)} tokens"


def extends(ours, theirs, key):
    """A lease that redis-py extends is seen by us."""
    held = theirs.acquire(key, MUTEX, ttl=800)
    for _ in range(4):
        assert theirs.tell("extend", hold=held, ttl_ms=800)["answer"] == "yes"
        assert ours.is_refused(key, MUTEX)
        time.sleep(0.4)
    theirs.release(held)
    ours.release(ours.acquire(key, MUTEX, wait=0))
    return ""


def keeps_its_hands_off(a, b, key, kind):
    """A hold that ran out and was taken by B is not released by A."""
    stale = a.acquire(key, kind, ttl=300)
    held = b.acquire(key, kind, ttl=20_000)
    try:
        said = a.tell("release", hold=stale)["answer"]
    except Refused:
        said = "no"
    assert said == "no", f"{a.name} says that it released"
    assert b.holds(held) and a.is_refused(key, kind), f"{a.name} released what {b.name} holds"
    b.release(held)
    return ""
