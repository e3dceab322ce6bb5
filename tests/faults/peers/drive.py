"""Injects the faults of some rows of docs/faults.md under other limiters, and records what their callers see.

drive.py NAME PROGRAM...      NAME is the limiter with its version. POLYLIMIT_FAULTS names the file of records.

The program gets the port of a Redis server as its last argument, prints `ready`, and makes decisions with four
callers, each a millisecond after its last one, on four keys whose limit nothing reaches. For each decision it prints a
line: when it began and how long it took, in microseconds, and A (admitted), D (denied) or E (an error). At the end of
its input it prints `used` and the units that the server has counted for the four keys.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis

#: The longest that a driver waits for a program to answer what is pending.
PATIENCE = 15.0
#: How long callers go on before a fault and after it.
BEFORE, AFTER = 0.5, 4.0


def until(what: str, condition) -> None:
    """Wait for a condition."""
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Server:
    """A Redis server with some more settings."""

    def __init__(self, *settings: str) -> None:
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="polylimit-peers-")
        self._settings = settings
        self._administrator = redis.Redis(port=self.port, retry=None, socket_timeout=5)
        self.launch()
        until("the server answers", self.answers)

    def launch(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder, "--save", ""]
        self.process = subprocess.Popen([*command, *self._settings], stdout=subprocess.DEVNULL)

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self._administrator.ping())
        return False

    def command(self, *words: str):
        return self._administrator.execute_command(*words)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self._administrator.close()
        self.kill()
        shutil.rmtree(self.folder)


class Proxy:
    """A proxy before a server, with faults of the network."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.latency = 0.0
        #: Whether the next reply is lost, with its connection.
        self.loses_reply = False
        self._lock = threading.Lock()
        #: Connections whose bytes are lost for good.
        self.half_open: set[int] = set()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            self.connections += 1
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target, is_reply in ((client, server, False), (server, client, True)):
                arguments = {"args": (source, target, self.connections), "kwargs": {"is_reply": is_reply}}
                threading.Thread(target=self._pump, daemon=True, **arguments).start()

    def _pump(self, source: socket.socket, target: socket.socket, number: int, *, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(1 << 16):
                if number in self.half_open:
                    continue
                if is_reply and self._loses():
                    break
                time.sleep(self.latency)
                target.sendall(received)
        if number not in self.half_open:
            for side in (source, target):
                with contextlib.suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def _loses(self) -> bool:
        with self._lock:
            loses, self.loses_reply = self.loses_reply, False
            return loses

    def close(self) -> None:
        self._listener.close()


def lose_connections(_server: Server, proxy: Proxy) -> None:
    """Lose all bytes for good, so that neither side learns that the other is gone."""
    proxy.half_open = set(range(1, proxy.connections + 1))


def lose_replies(_server: Server, proxy: Proxy) -> None:
    """End connections after the request has been executed and before its reply arrives."""
    for _ in range(20):
        proxy.loses_reply = True
        until("a reply is lost", lambda: not proxy.loses_reply)
        time.sleep(0.1)


def delay(_server: Server, proxy: Proxy) -> None:
    """Delay each direction by up to 100 ms."""
    for milliseconds in (5, 30, 60, 100, 30, 5):
        proxy.latency = milliseconds / 1000
        time.sleep(0.4)
    proxy.latency = 0.0


def forget_scripts(server: Server) -> None:
    for _ in range(30):
        server.command("SCRIPT", "FLUSH", "SYNC")
        time.sleep(0.05)


def restart_empty(server: Server) -> None:
    server.kill()
    time.sleep(1)
    server.launch()
    until("the server answers", server.answers)


def load(server: Server) -> None:
    server.command("SAVE")
    server.kill()
    server.launch()
    until("the server has loaded", server.answers)


def be_busy(server: Server) -> None:
    """Run a script of another client until it is killed."""
    with socket.create_connection(("127.0.0.1", server.port)) as other:
        script = b"while true do end"
        other.sendall(b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(script), script))
        time.sleep(1)
        server.command("SCRIPT", "KILL")


def refuse(name: str, refusing: str, serving: str):
    """Refuse for a second by a setting."""

    def fault(server: Server) -> None:
        server.command("CONFIG", "SET", name, refusing)
        time.sleep(1)
        server.command("CONFIG", "SET", name, serving)

    return fault


def fail_to_save(server: Server) -> None:
    """Put a folder in the place of the file."""

    def saved(status: str) -> None:
        server.command("BGSAVE")
        until("the save ends", lambda: server.command("INFO", "persistence")["rdb_bgsave_in_progress"] == 0)
        assert server.command("INFO", "persistence")["rdb_last_bgsave_status"] == status

    obstacle = Path(server.folder) / "dump.rdb"
    (obstacle / "obstacle").mkdir(parents=True)
    saved("err")
    time.sleep(1)
    shutil.rmtree(obstacle)
    saved("ok")


def hold_all_connections(server: Server) -> None:
    """Let other clients take the places of those that are disconnected."""
    server.command("CONFIG", "SET", "maxclients", "10")
    with contextlib.ExitStack() as stack:
        server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for _ in range(30):
            other = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            other.sendall(b"PING\r\n")
        time.sleep(1)
    server.command("CONFIG", "SET", "maxclients", "1000")


def suspend(server: Server) -> None:
    server.process.send_signal(19)
    time.sleep(5)
    server.process.send_signal(18)


#: For each row its fault, the server's settings, and a case in words.
FAULTS = {
    "F1": (forget_scripts, (), "scripts forgotten every 50 ms"),
    "F2": (restart_empty, (), "killed, empty after 1 s"),
    "F8": (
        load,
        ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"),
        "loading for about 1 s",
    ),
    "F9": (be_busy, ("--busy-reply-threshold", "30"), "busy for 1 s"),
    "F10": (refuse("maxmemory", "1", "0"), ("--maxmemory-policy", "noeviction"), "out of memory for 1 s"),
    "F12": (fail_to_save, ("--save", "3600 1000000000"), "cannot save for 1 s"),
    "F13": (refuse("min-replicas-to-write", "1", "0"), (), "no replicas for 1 s"),
    "F14": (hold_all_connections, (), "no free connection for 1 s"),
    "F21": (lose_connections, (), "open connections become half-open"),
    "F22": (lose_replies, (), "20 connections end before a reply"),
    "F26": (delay, (), "latency rises to 200 ms and falls"),
    "F20": (suspend, (), "suspended for 5 s"),
}

#: The rows whose fault is one of the network.
BY_PROXY = ("F21", "F22", "F26")


def drive(row: str, name: str, program: list[str]) -> None:
    """Run a program through one fault, and record it."""
    fault, settings, case = FAULTS[row]
    with contextlib.closing(Server(*settings)) as server:
        if row == "F8":
            for number in range(2000):
                server.command("SET", f"other:{number}", "x")
        proxy = Proxy(server.port) if row in BY_PROXY else None
        port = str(proxy.port if proxy else server.port)
        process = subprocess.Popen([*program, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # The output is read all the time, so that the program never waits for its reader.
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout))
        reader.start()
        try:
            until(f"{name} is ready", lambda: "ready\n" in lines)
            time.sleep(BEFORE)
            fault(server, proxy) if proxy else fault(server)
            ended = time.time_ns() // 1000
            time.sleep(AFTER)
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            reader.join()
            if proxy:
                proxy.close()
    report(row, name, case, lines, ended)


def report(row: str, name: str, case: str, lines: list[str], ended: int) -> None:
    """Sum up what a program printed."""
    words = [line.split() for line in lines]
    decisions = [(int(one[0]), int(one[1]), one[2]) for one in words if len(one) == 3]
    used = next((int(one[1]) for one in words if one[0] == "used"), None)
    outcomes = [outcome for _, _, outcome in decisions]
    admitted, errors = outcomes.count("A"), outcomes.count("E")
    recovered = min(
        (at + took - ended for at, took, outcome in decisions if at >= ended and outcome == "A"), default=None
    )
    record = {
        "peer": name,
        "row": row,
        "file": "tests/faults/peers/drive.py",
        "case": case,
        "decisions": len(decisions),
        "slowest_us": max(took for _, took, _ in decisions),
        "errors": errors,
        "measured": f"{case}; {outcomes.count('D')} denied though the limit was not reached",
    }
    if recovered is not None:
        record["recovered_us"] = recovered
    if used is None:
        # What its callers still wait for has taken at least so long.
        record["slowest_us"] = round((AFTER + PATIENCE) * 1e6)
        record["measured"] += f"; callers still waited {AFTER + PATIENCE:.0f} s later, and were ended"
    # A server that has lost its data counts from 0.
    elif row not in ("F2", "F8"):
        record["counted_too_often"] = max(0, used - admitted - errors)
    print(json.dumps(record), flush=True)
    if records := os.environ.get("POLYLIMIT_FAULTS"):
        with Path(records).open("a") as file:
            file.write(f"{json.dumps(record)}\n")


def main() -> None:
    """Drive a program through all faults, or those that FAULTS names."""
    name, *program = sys.argv[1:]
    for row in os.environ.get("FAULTS", ",".join(FAULTS)).split(","):
        drive(row, name, program)


main()
