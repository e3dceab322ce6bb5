"""The command line tool as the package ``polylimit-cli`` has it, by ``polylimit`` and by ``python -m polylimit``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polylimit
import pytest
from redis_server import until

MODULE = [sys.executable, "-m", "polylimit"]
#: Stands next to the interpreter once the package is installed.
SCRIPT = [Path(sys.executable).parent / "polylimit"]


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The package ``polylimit_cli``, with a debug build of the program, where Python finds it."""
    folder = tmp_path_factory.mktemp("cli")
    shutil.copytree(ROOT / "bindings/python/cli/polylimit_cli", folder / "polylimit_cli")
    subprocess.run([ROOT / "tests/build", "polylimit-cli"], check=True)
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/polylimit"
    (folder / "polylimit_cli/polylimit").symlink_to(built)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield


@pytest.fixture(
    params=[MODULE, SCRIPT, [sys.executable, "-c", "import polylimit_cli; polylimit_cli.main()"]],
    ids=["module", "script", "alone"],
)
def program(request):
    """The ways to start the tool; the last one is the command of ``polylimit-cli`` itself."""
    return request.param


def run(*arguments, program=MODULE, **options):
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def test_exit_status_tells_the_decision(program, local, key):
    ask = ["--store", local, "check", "2/day", key]
    assert [run(*ask, program=program)[0] for _ in range(3)] == [0, 0, 1]
    status, out, err = run("--store", local, "peek", "2/day", key, "--json", program=program)
    answer = json.loads(out)
    assert (status, err, answer["allowed"], answer["cause"]) == (1, "", False, "quota")
    assert [(quota["limit"], quota["allowed"]) for quota in answer["quotas"]] == [(2, False)]


def test_command_and_library_count_together(redis, key):
    with polylimit.Limiter(redis) as limiter:
        assert limiter.check(key, "2/day")
        assert run("--store", redis, "check", "2/day", key)[0] == 0
        assert not limiter.check(key, "2/day")
        assert run("--store", redis, "explain", "2/day", key, "--json")[0] == 1


def test_store_that_does_not_answer_is_undecided(key):
    status, out, err = run("--store", "redis://127.0.0.1:1", "check", "2/day", key)
    assert status == 2
    assert "Traceback" not in out + err
    status, out, _ = run("--store", "redis://127.0.0.1:1", "doctor")
    assert status == 1
    assert "problem" in out


def test_arguments_that_cannot_be_used_are_told(program):
    for arguments, told in (
        (["--store", "memory:", "check", "100/fortnight", "key"], "fortnight"),
        (["--store", "redis://user:hunter2@host", "check", "1/s", "key"], "POLYLIMIT_STORE"),
        (["--store", "memory:", "check"], "Usage: polylimit check"),
        (["heal"], "heal"),
        ([], "Usage: polylimit"),
    ):
        status, out, err = run(*arguments, program=program)
        assert (status, out) == (64, "")
        assert told in err
        assert "hunter2" not in err
        assert "Traceback" not in err


def test_help_and_version_are_those_of_the_tool(program):
    status, out, err = run("--help", program=program)
    assert (status, err) == (0, "")
    assert "Usage: polylimit " in out
    words = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert {"check", "explain", "list", "policies", "bench", "simulate"} <= words
    assert run("--version", program=program) == (0, f"polylimit {polylimit.__version__}\n", "")


def test_key_that_is_no_text_is_told_in_base64(local):
    command = [*map(os.fsencode, MODULE), b"--store", local.encode(), b"peek", b"2/day", b"\xff", b"--json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, json.loads(done.stdout)["key_base64"]) == (0, "/w==")


def test_reader_that_has_gone_is_no_failure():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*MODULE, "completions", "bash"], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("program", [MODULE, SCRIPT], ids=["module", "script"])
def test_command_without_the_extra_says_what_to_install(program, monkeypatch):
    monkeypatch.delenv("PYTHONPATH")
    assert run("--version", program=program) == (
        127,
        "",
        'polylimit: the command line is not installed: pip install "polylimit[cli]"\n',
    )


def test_program_that_cannot_be_loaded_is_no_missing_extra(monkeypatch, tmp_path):
    (tmp_path / "polylimit_cli.py").write_text("import no_such_module\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    status, _, err = run("--version")
    assert (status, "no_such_module" in err, "not installed" in err) == (1, True, False)


def test_simulation_runs():
    status, out, err = run("simulate", "--policy", "api=10/s", "--traffic", "5 clients 4/s", "--for", "1m", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)


def bench(server, program, seconds, **options):
    """Starts a measurement, and returns its process when it is under way."""
    command = [*program, "--store", f"{server.url}?deadline=30s", "bench", "1000000/s", "--seconds", str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    until(lambda: server.command("DBSIZE") not in (None, b":0\r\n"), "the command decides")
    return process


def heed_interrupts():
    """Runs in the child: tests that run in the background of a script ignore SIGINT, and a child inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("sent", "status", "report"), [(signal.SIGINT, 2, b" checks in "), (signal.SIGTERM, -signal.SIGTERM, b"")]
)
def test_signals_reach_the_program(program, own_redis, sent, status, report):
    """A measurement ends itself at an interrupt and resets its keys; SIGTERM ends it as any program."""
    process = bench(own_redis, program, 3_600, preexec_fn=heed_interrupts)
    try:
        time.sleep(0.1)
        assert process.poll() is None
        process.send_signal(sent)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, report in out, err) == (status, True, b"")


def test_import_loads_nothing_that_takes_long():
    needed = "import sys, datetime, json, logging, threading, types; before = set(sys.modules)"
    program = f"{needed}; import polylimit; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    # What calls need is imported with the module.
    assert set(done.stdout.split()) - {"_contextvars", "contextvars"} == {"polylimit", "polylimit._core"}
