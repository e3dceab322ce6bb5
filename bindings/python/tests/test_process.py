"""Limiters and their process: forks, signals, exit, and released resources."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from polylimit import Limiter

#: `make faults` runs the tests in their long forms.
LONG = "POLYLIMIT_FAULTS" in os.environ

#: On a busy machine a callback may take long, which asyncio reports in development mode.
IGNORE_SLOW_CALLBACKS = """
import logging
logging.getLogger("asyncio").addFilter(lambda record: "took %.3f seconds" not in str(record.msg))
"""


def python(program: str, *arguments: str, seconds: int = 300) -> str:
    """Runs a program in a new process, which must exit with 0 and print no error."""
    program = IGNORE_SLOW_CALLBACKS + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


FORKS = """
    import faulthandler, os, signal, sys, threading
    from polylimit import Limiter
    # What hangs says where: the parent by its stacks, and a child by the count of those that failed.
    faulthandler.dump_traceback_later(200, exit=True)
    limiter = Limiter(sys.argv[1], {"api": "1000000/day"})
    over = threading.Event()
    def load():
        while not over.is_set():
            limiter.check("load")
    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads: thread.start()
    failed = 0
    for _ in range(int(sys.argv[2])):
        children = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                try:
                    os._exit(0 if limiter.check("fork").source == "store" else 1)
                finally:
                    os._exit(2)
            children.append(child)
        failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    over.set()
    for thread in threads: thread.join()
    used = 1_000_000 - limiter.peek("fork").remaining
    print(failed, used, limiter.check("fork").source)
"""


#: Twenty forks each.
ROUNDS = 50 if LONG else 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redis", "local"])
def test_forks_under_load_share_the_store(request, name, record):
    forks = 20 * ROUNDS
    assert python(FORKS, request.getfixturevalue(name), str(ROUNDS)) == f"0 {forks} store\n"
    store = {"redis": "Redis", "local": "the local store"}[name]
    record("F60", f"Python, os.fork on {store}", decisions=forks, measured=f"{forks} forks, each counted once")


#: Forks at each event of the interpreter, such as an import, that a thread causes by its first use of the package.
FIRST_USE = """
    import asyncio, inspect, os, signal, sys, threading
    from collections import UserDict
    from datetime import timedelta
    from polylimit import AsyncLimiter, Limiter
    quotas = UserDict(api="1000/day")
    patience = timedelta(seconds=9)

    async def wait():
        await AsyncLimiter("memory:", quotas).acquire("key", timeout=patience)

    def use():
        Limiter("memory:", quotas, deadline=patience).check("key")
        asyncio.run(wait())
        inspect.signature(AsyncLimiter.check)

    events, is_forked, is_waiting = [], threading.Event(), False

    def hook(event, _):
        global is_waiting
        if threading.current_thread() is worker and not is_waiting:
            is_waiting = True
            is_forked.clear()
            events.append(event)
            is_forked.wait()
            is_waiting = False

    worker = threading.Thread(target=use)
    sys.addaudithook(hook)
    worker.start()
    seen, hung = 0, []
    while worker.is_alive() or seen < len(events):
        if seen == len(events):
            worker.join(0.001)
            continue
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            use()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            hung.append(events[seen])
        seen += 1
        is_forked.set()
    print(seen > 5, hung)
"""


@pytest.mark.slow
def test_children_that_are_forked_during_a_first_use_work():
    assert python(FIRST_USE) == "True []\n"


@pytest.mark.slow
def test_forks_under_load_have_memory_of_their_own():
    assert python(FORKS, "memory:", str(ROUNDS)) == "0 0 store\n"


def test_event_loop_works_in_forked_children(redis):
    printed = python(
        """
        import asyncio, os, sys
        from polylimit import AsyncLimiter
        limiter = AsyncLimiter(sys.argv[1], {"api": "1000/day"})
        async def use(times):
            for _ in range(times):
                assert (await limiter.check("async fork")).source == "store"
        asyncio.run(use(5))
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    asyncio.run(use(5))
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
        asyncio.run(use(5))
        print(1000 - asyncio.run(limiter.peek("async fork")).remaining)
        """,
        redis,
    )
    assert printed == "110\n"


def _use(url, key, times):
    limiter = Limiter(url, {"api": "100/day"})
    return sum(limiter.check(key).allowed for _ in range(times))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_pool_shares_one_budget(method, local, redis, key, record):
    for url in (local, redis):
        with ProcessPoolExecutor(4, mp_context=get_context(method)) as pool:
            allowed = [pool.submit(_use, url, key, 50) for _ in range(4)]
            assert sum(future.result() for future in allowed) == 100
    record("F60", f"Python, multiprocessing by {method}", decisions=400, admitted=200, admitted_of_key=100, bound=100)


@pytest.mark.parametrize("pending", ["check", "acquire"])
def test_interpreter_exits_with_pending_operations(own_redis, pending, record):
    own_redis.command("CLIENT", "PAUSE", "60000")
    python(
        """
        import asyncio, math, sys, threading, time
        from polylimit import AsyncLimiter, Limiter
        url, pending = sys.argv[1:]
        blocking = Limiter(url, {"api": "1/day"}, deadline=60)
        memory = Limiter(policies={"api": "1/day"})
        memory.check("a")
        def wait():
            blocking.check("a") if pending == "check" else memory.acquire("a", timeout=math.inf)
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        limiter = blocking.asynchronous if pending == "check" else memory.asynchronous
        async def main():
            operation = limiter.check if pending == "check" else lambda key: limiter.acquire(key, timeout=math.inf)
            tasks = [asyncio.ensure_future(operation("a")) for _ in range(100)]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in tasks)
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(main())
        finally:
            for task in asyncio.all_tasks(loop): task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
        """,
        own_redis.url,
        pending,
    )
    record("F61", f"Python, {pending}", measured="104 operations pending at exit, status 0")


INTERRUPTED = """
    import math, signal, sys, threading, time
    from polylimit import Limiter
    # A background job may ignore SIGINT, and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    url, operation = sys.argv[1:]
    limiter = Limiter(url, {"api": "1/day"}, **({} if url == "memory:" else {"deadline": 60}))
    if operation == "acquire" and url == "memory:":
        limiter.check("a")
    print("ready", flush=True)
    try:
        if operation == "acquire":
            limiter.acquire("a", timeout=math.inf)
        elif operation == "ready":
            limiter.ready(60)
        else:
            limiter.check("a")
    except KeyboardInterrupt:
        print(f"interrupted {time.time_ns()}", flush=True)
"""


@pytest.mark.parametrize(
    ("store", "operation"), [("memory", "acquire"), ("redis", "check"), ("redis", "acquire"), ("redis", "ready")]
)
def test_keyboard_interrupt_ends_a_waiting_call(own_redis, store, operation):
    """Within 100 ms. The shortest of several waits shows it: a busy machine lengthens them, and shortens none."""
    own_redis.command("CLIENT", "PAUSE", "60000")
    url = "memory:" if store == "memory" else own_redis.url
    waits = []
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(INTERRUPTED), url, operation], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        sent = time.time_ns()
        process.send_signal(signal.SIGINT)
        word, at = process.stdout.readline().split()
        assert (word, process.wait(10)) == ("interrupted", 0)
        process.stdout.close()
        waits.append((int(at) - sent) / 1e6)
        if min(waits) < 100:
            return
    pytest.fail(f"milliseconds from the signal to the exception: {[round(wait, 1) for wait in waits]}")


def test_signal_handler_can_use_the_limiter(own_redis):
    printed = python(
        """
        import signal, sys
        from polylimit import Limiter
        limiter = Limiter(sys.argv[1], {"api": "100000/day", "one": "1/day"}, deadline=30)
        heard = []
        def on_alarm(*_):
            heard.append(limiter.check("a", "api").source)
        signal.signal(signal.SIGALRM, on_alarm)
        limiter.check("b", "one")
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        while len(heard) < 3:
            limiter.check("a", "api")
        is_denied = not limiter.acquire("b", "one", timeout=0.5)
        # A signal after the interpreter has restored the default handler would kill the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(is_denied, set(heard))
        """,
        own_redis.url,
    )
    assert printed == "True {'store'}\n"


GROWTH = """
    import asyncio, gc, os, sys, time
    from polylimit import AsyncLimiter, Limiter
    url, times = sys.argv[1], int(sys.argv[2])
    loop = asyncio.new_event_loop()
    async def use_asynchronous():
        async with AsyncLimiter(url, {"api": "1000000/day"}) as limiter:
            assert (await limiter.check("growth")).source == "store"
    def footprint():
        gc.collect()
        pages = int(open("/proc/self/statm").read().split()[1])
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), pages * 4
    def use(number):
        with Limiter(url, {"api": "1000000/day"}) as limiter:
            assert limiter.check("growth").source == "store"
        if number % 3 == 0:
            loop.run_until_complete(use_asynchronous())
    def settled():
        # Threads and connections end in the background.
        for _ in range(1000):
            now = footprint()
            if now[:2] <= before[:2]: break
            time.sleep(0.02)
        return now
    for number in range(times // 10):
        use(number)
    before = footprint()
    marks = [settled()]
    for _ in range(3):
        for number in range(times // 3):
            use(number)
        marks.append(settled())
    # The more threads end late, the more memory the allocator keeps. What leaks grows in every part.
    kibibytes = 3 * min(now[2] - then[2] for then, now in zip(marks, marks[1:]))
    print(*(now - then for now, then in zip(marks[-1][:2], before)), kibibytes)
    loop.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "local", "redis"])
def test_closed_limiters_release_all_resources(request, name, record):
    times = 10_000 if LONG else 2_000
    url = "memory:" if name == "memory" else request.getfixturevalue(name)
    printed = python("import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(GROWTH), url, str(times))
    descriptors, threads, kibibytes = map(int, printed.split())
    assert descriptors <= 1
    assert threads <= 1
    assert kibibytes <= 4 * times
    growth = f"{descriptors} descriptors, {threads} threads, {kibibytes} KiB"
    record("F69", f"Python, {name}", decisions=times, measured=f"{times} limiters; growth: {growth}")


KEPT = """
    import asyncio, os, subprocess, sys
    from polylimit import AsyncLimiter, Limiter
    url, times = sys.argv[1], int(sys.argv[2])
    def footprint():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    async def use_asynchronous():
        limiter = AsyncLimiter(url, {"api": "1000000/day"})
        assert (await limiter.check("kept")).source == "store"
        await limiter.close()
        return limiter
    def use():
        limiter = Limiter(url, {"api": "1000000/day"})
        assert limiter.check("kept").source == "store"
        limiter.close()
        return limiter
    loop = asyncio.new_event_loop()
    kept = [use(), loop.run_until_complete(use_asynchronous())]
    before = footprint()
    for _ in range(times // 2):
        kept += [use(), loop.run_until_complete(use_asynchronous())]
    # Threads and connections end in the background.
    import time
    for _ in range(1000):
        after = footprint()
        if after <= before: break
        time.sleep(0.02)
    program = "import sys; from polylimit import Limiter; print(Limiter(sys.argv[1]).check('kept', '9/day').source)"
    print(subprocess.check_output([sys.executable, "-c", program, url], text=True).strip())
    print(len(kept), *(now - then for now, then in zip(after, before)))
    loop.close()
"""


@pytest.mark.parametrize("name", ["local", "redis", "memory"])
def test_closed_limiters_hold_no_resources_while_referenced(request, name):
    url = "memory:" if name == "memory" else request.getfixturevalue(name)
    source, left = python(KEPT, url, "1100").splitlines()
    assert source == "store"
    kept, descriptors, threads = map(int, left.split())
    assert kept == 1102
    assert descriptors <= 0
    assert threads <= 0


CLOSED = """
    import asyncio, sys
    from polylimit import AsyncLimiter, ClosedError, Limiter
    calls = {
        "check": ("a",), "peek": ("a",), "take": ("a",), "charge": ("a",), "refund": ("a",), "reset": ("a",),
        "check_many": (["a"],), "check_together": (["a"],), "peek_together": (["a"],),
        "reserve_together": (["a"],), "ready": (5,), "doctor": (), "policy_for": (),
    }
    def method(limiter, name):
        return getattr(limiter.admin() if name == "doctor" else limiter, name)
    def raises(call):
        try:
            call()
        except ClosedError as error:
            assert error.code == "closed", error.code
            return True
        return False
    limiter = Limiter(sys.argv[1], {"api": "9/day"})
    limiter.close()
    limiter.close()
    one = [name for name, arguments in calls.items() if not raises(lambda: method(limiter, name)(*arguments))]
    one += [] if raises(lambda: limiter.acquire("a", timeout=5)) else ["acquire"]
    async def main():
        limiter = AsyncLimiter(sys.argv[1], {"api": "9/day"})
        await limiter.close()
        await limiter.close()
        left = []
        for name, arguments in [*calls.items(), ("acquire", ("a",))]:
            try:
                called = method(limiter, name)(*arguments, **({"timeout": 5} if name == "acquire" else {}))
                await called
                left.append(name)
            except ClosedError:
                pass
        return left
    print(one, asyncio.run(main()))
"""


def test_every_operation_raises_after_close(store):
    assert python(CLOSED, store) == "[] []\n"


WAITING = """
    import asyncio, sys, threading, time
    from polylimit import AsyncLimiter, ClosedError, Limiter
    limiter = Limiter(sys.argv[1], {"api": "1/day"})
    limiter.check("a")
    codes = []
    def wait():
        try:
            limiter.acquire("a", timeout=float("inf"))
        except ClosedError as error:
            codes.append(error.code)
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    limiter.close()
    thread.join(60)
    async def main():
        limiter = AsyncLimiter(sys.argv[1], {"api": "1/day"})
        await limiter.check("a")
        waiting = asyncio.ensure_future(limiter.acquire("a", timeout=float("inf")))
        await asyncio.sleep(0.3)
        await limiter.close()
        try:
            await asyncio.wait_for(waiting, 60)
        except ClosedError as error:
            codes.append(error.code)
    asyncio.run(main())
    print(codes)
"""


def test_close_ends_waiting_acquires(store):
    assert python(WAITING, store) == "['closed', 'closed']\n"


def test_calls_without_descriptors_raise_no_panic(own_redis):
    output = python(
        """
        import logging, os, resource, sys
        from polylimit import Limiter, StoreUnavailableError

        logging.getLogger("polylimit").setLevel(logging.CRITICAL)
        memory = Limiter("memory:", {"p": "5/day"})
        redis = Limiter(f"{sys.argv[1]}?outage=allow&doctor_after=0", {"p": "5/day"})
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
        opened = []
        try:
            while True:
                opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        def reserved(limiter):
            # Its renewal needs a thread with a timer.
            try:
                return limiter.reserve("k", ttl=5).commit()
            except StoreUnavailableError as error:
                return str(error)
        calls = [
            lambda: memory.acquire("k", timeout=1),
            lambda: reserved(memory),
            lambda: memory.ready(timeout=1),
            lambda: memory.admin().block("blocked", time=5),
            lambda: memory.admin().explain("k"),
            lambda: memory.admin().doctor(),
            lambda: redis.check("k"),
            lambda: redis.acquire("k", timeout=1),
        ]
        results = [call() for call in calls]
        for descriptor in opened:
            os.close(descriptor)
        for decision in results[-2:]:
            print(decision.allowed, decision.source, decision.degraded)
        """,
        own_redis.url,
    )
    assert output.splitlines() == ["True allow no_resources"] * 2


def test_second_interpreter_of_a_process_is_refused_with_a_sentence():
    code = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys
import polylimit
other = interpreters.create()
load = f"import sys\\nsys.path[:] = {sys.path}\\nimport polylimit"
if sys.version_info >= (3, 13):
    print(interpreters.exec(other, load).msg)
else:
    try:
        interpreters.run_string(other, load)
    except RuntimeError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert "interpreter" in done.stdout, done.stderr
