import subprocess
import sys


def run(*arguments):
    done = subprocess.run([sys.executable, "-m", "polylimit", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_check_exits_with_0_or_1(local, redis, key):
    for url in (local, redis):
        statuses = [run("check", url, key, "2/day")[0] for _ in range(3)]
        assert statuses == [0, 0, 1]
        status, out, _ = run("check", "--cost", "5", url, key, "9/day")
        assert (status, out[:37]) == (0, "Decision(allowed=True, remaining=4, r")


def test_check_during_an_outage_exits_with_2(key):
    for outage, found in [
        ("fallback", "True, remaining=1"),
        ("allow", "True, remaining=2"),
        ("deny", "False, remaining=0"),
    ]:
        status, out, err = run("check", f"redis://127.0.0.1:1?outage={outage}", key, "2/day")
        assert (status, err) == (2, "polylimit: the store cannot be asked: unreachable\n")
        assert out.startswith(f"Decision(allowed={found}, ")
        assert f"source='{outage}'" in out


def test_doctor_reports_findings(local, own_redis):
    assert run("doctor", local) == (0, "fine: the store answers\n", "")
    status, out, err = run("doctor", own_redis.url)
    assert (status, err) == (0, "")
    assert "fine: version: " in out
    own_redis.stop()
    status, out, _ = run("doctor", own_redis.url)
    assert status == 1
    assert out.startswith("problem: connection: ")


def test_invalid_arguments_exit_with_2():
    for arguments in (
        ["check", "memory:", "key", "100/month"],
        ["check", "http://user:hunter2@host", "key", "1/s"],
        ["check", "memory:"],
        ["heal"],
        [],
    ):
        status, out, err = run(*arguments)
        assert (status, out) == (2, "")
        assert "hunter2" not in err
        assert "Traceback" not in err
        assert err
