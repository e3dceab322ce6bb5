"""The code in the documentation runs, and the wheel is complete."""

import ast
import doctest
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polylimit
import pytest
from polylimit._guard import Options
from polylimit.flask import RateLimit

PACKAGE = Path(__file__).parent.parent
DOCS = PACKAGE.parent.parent / "docs"
MIGRATION = [DOCS / "migrate" / f"from-{peer}.md" for peer in ("flask-limiter", "slowapi")]
PAGES = {
    page.name: page
    for page in (
        PACKAGE / "README.md",
        *(DOCS / f"{name}.md" for name in ("clients", "listing", "metrics", "policies", "reservations")),
        *MIGRATION,
        *(DOCS / "migrate" / f"from-{peer}.md" for peer in ("aiolimiter", "django-ratelimit", "pyrate-limiter")),
    )
}
SNIPPETS = [
    (name, number, snippet)
    for name, page in PAGES.items()
    for number, snippet in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    # Sanic is not in target/python-venv: test_sanic.py runs it.
    if "polylimit.sanic" not in snippet
]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [Path(sys.executable).parent / "maturin", "build", "--locked", "--quiet", "--profile", "dev", "--out", folder],
        cwd=PACKAGE,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def web_server():
    """The URL of a server that answers a GET by 200."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def servers(redis, web_server):
    """The servers in place of those that the documentation names."""
    return {"redis://localhost:6379": redis, "https://api.example.com": web_server}


CAPTURED = {"capture_output": True, "text": True, "check": False}


#: The versions of Python that are promised.
PROMISED = [f"3.{minor}" for minor in range(10, 15)]


def interpreter_of(version):
    """An interpreter of a version with which an environment can be made: one of the system, or one of pyenv."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    for interpreter in (shutil.which(f"python{version}"), *reversed(installed)):
        if interpreter and subprocess.run([interpreter, "-c", "import ensurepip, venv"], **CAPTURED).returncode == 0:
            return interpreter
    return None


#: The first test with the wheel builds it, which takes minutes on a busy machine.
builds_wheel = pytest.mark.timeout(900)


@pytest.mark.slow
@builds_wheel
@pytest.mark.parametrize(
    "versions",
    [
        pytest.param(PROMISED, id="oldest"),
        pytest.param(PROMISED[::-1], id="newest"),
        *(pytest.param([version], id=version, marks=pytest.mark.between) for version in PROMISED[1:-1]),
    ],
)
def test_wheel_works_in_a_fresh_environment(wheel, tmp_path, versions):
    interpreter = next(filter(None, map(interpreter_of, versions)), None)
    if interpreter is None:
        pytest.skip(f"there is no Python {' or '.join(versions)} here")
    assert "-cp310-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"polylimit/py.typed", "polylimit/_core.pyi", "polylimit/__main__.py", "polylimit/django.py"} <= names
    licences = {name.rpartition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE-APACHE", "LICENSE-MIT", "THIRD_PARTY_NOTICES"}
    subprocess.run([interpreter, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run(install, check=True)
    program = "from polylimit import Limiter; print(Limiter().check('a', '2/day').remaining)"
    assert subprocess.run([python, "-I", "-c", program], **CAPTURED).stdout == "1\n"
    # The program is in the package polylimit-cli, which this one names as its extra of the same version.
    for command in ([python, "-I", "-m", "polylimit"], [python.with_name("polylimit")]):
        done = subprocess.run([*command, "--store", "memory:", "check", "1/day", "a"], **CAPTURED)
        assert (done.returncode, done.stdout) == (127, "")
        assert 'pip install "polylimit[cli]"' in done.stderr
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    extra = f"Requires-Dist: polylimit-cli=={polylimit.__version__} ; extra == 'cli'"
    assert extra in zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
    packages = subprocess.run([python, "-m", "pip", "list", "--format", "freeze"], **CAPTURED).stdout
    assert {line.split("==")[0] for line in packages.split()} <= {"pip", "setuptools", "polylimit"}


@pytest.mark.parametrize(
    ("page", "number", "snippet"), SNIPPETS, ids=[f"{page} {number}" for page, number, _ in SNIPPETS]
)
def test_documentation_snippet_runs(page, number, snippet, servers, tmp_path):
    for named, here in servers.items():
        snippet = snippet.replace(named, here)
    (tmp_path / "snippet.py").write_text(snippet)
    # slowapi uses functions that newer versions of Python deprecate.
    warnings = ["-W", "error", *(["-W", "ignore::DeprecationWarning"] if "slowapi" in snippet else [])]
    command = [sys.executable, *warnings, "-c", snippet]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Appended to the program of docs/policies.md: each of its applications denies what a published document denies.
DENIED_BY_METHOD = """
import sys
import django
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from fastapi.testclient import TestClient

settings.ROOT_URLCONF = __name__
urlpatterns = [path("", lambda request: HttpResponse("well"))]
django.setup()
site.add_url_rule("/", view_func=lambda: "well", methods=["GET", "DELETE"])
api.add_api_route("/", lambda: "well", methods=["GET", "DELETE"])
limiter.admin().publish('polylimit = 1\\nlists.deny = ["method DELETE"]')
for client in (site.test_client(), Client(), TestClient(api)):
    statuses = client.get("/").status_code, client.delete("/").status_code
    if statuses != (200, 403):
        sys.exit(f"{client}: {statuses}")
"""


def test_middlewares_of_the_policies_page_decide_by_the_configuration(redis, tmp_path):
    ((_, _, snippet),) = [one for one in SNIPPETS if one[0] == "policies.md"]
    url = f"{redis}&prefix={tmp_path.name}"
    program = tmp_path / "program.py"
    program.write_text(snippet.replace("redis://localhost:6379", url) + DENIED_BY_METHOD)
    done = subprocess.run([sys.executable, program], cwd=tmp_path, timeout=60, **CAPTURED)
    assert done.returncode == 0, done.stderr
    # It publishes the document itself.
    assert [line for line in done.stderr.splitlines() if "no document is published in the store" not in line] == []


def test_documentation_has_snippets():
    counts = {name: sum(name == page for page, *_ in SNIPPETS) for name in PAGES}
    assert counts["README.md"] >= 6
    assert counts["clients.md"] == 3
    assert counts["listing.md"] == counts["metrics.md"] == counts["policies.md"] == counts["reservations.md"] == 1
    assert counts["from-flask-limiter.md"] == 3
    assert counts["from-slowapi.md"] == 2
    assert counts["from-aiolimiter.md"] == counts["from-django-ratelimit.md"] == counts["from-pyrate-limiter.md"] == 1


@pytest.mark.parametrize("page", MIGRATION, ids=lambda page: page.stem)
def test_migration_page_agrees_with_option_suggestions(page):
    """The suggestion for an option of another library is the one that the page gives."""
    from polylimit._core import advice

    rows = re.findall(r"^\| `(\w+)`[^|]*\| `(\w+)`", page.read_text(), re.MULTILINE)
    names = (option.name for option in polylimit.options())
    options = [*inspect.signature(RateLimit).parameters, *Options.__annotations__, *names]
    page = {theirs: ours for theirs, ours in rows if theirs != ours and ours in options}
    assert {"key_func", "limit_value", "exempt_when"} <= page.keys()
    assert {theirs: ours for theirs, ours in page.items() if f"use {ours}" not in advice(theirs, options)} == {}


def test_readme_lists_every_option():
    from polylimit import options

    readme = (PACKAGE / "README.md").read_text()
    assert [option.name for option in options() if f"`{option.name}`" not in readme] == []


@pytest.mark.parametrize(
    "module",
    [
        "",
        ".flask",
        ".fastapi",
        ".functions",
        ".aiohttp",
        ".aiohttp_server",
        ".celery",
        ".dramatiq",
        ".grpc",
        ".litestar",
        ".quart",
        ".rq",
        ".httpx",
        ".requests",
        ".prometheus",
        ".opentelemetry",
        ".reports",
    ],
)
def test_module_docstring_examples_run(module):
    tested = doctest.testmod(importlib.import_module(f"polylimit{module}"))
    assert tested.attempted > 0
    assert tested.failed == 0


@pytest.mark.slow
@builds_wheel
def test_wheel_metadata_has_homepage_and_licences(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = files.read(name).decode()
        notices = files.read(name.replace("METADATA", "licenses/THIRD_PARTY_NOTICES")).decode()
    assert "Project-URL: Homepage, https://" in metadata
    assert "License-Expression: MIT OR Apache-2.0" in metadata
    assert "\npyo3 " in notices
    assert "TERMS AND CONDITIONS" in notices


def test_readme_links_are_absolute():
    links = re.findall(r"\]\(([^)]*)\)", (PACKAGE / "README.md").read_text())
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def stubs():
    """The stubs, with the docstrings of the functions and classes in them."""
    return ast.parse((PACKAGE / "python" / "polylimit" / "_core.pyi").read_text())


def test_stubs_have_docstrings():
    for node in stubs().body:
        if isinstance(node, ast.ClassDef) and node.name in polylimit.__all__ and node.name != "Operation":
            assert ast.get_docstring(node), node.name
    classes = [node for node in stubs().body if getattr(node, "name", "") in {"Limiter", "Admin"}]
    methods = [node for one in classes for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    undocumented = {node.name for node in methods if not ast.get_docstring(node)}
    assert {name for name in undocumented if not name.startswith("_")} <= {"check_many"}, "an overload has none"


def test_option_types_are_checked_by_mypy(tmp_path):
    program = """
from datetime import timedelta
from polylimit import AsyncLimiter, Limiter
Limiter(deadline="5ms", max_keys=10, outage={"api": "deny"}, lease={"api": "auto"}, key_secret=None)
AsyncLimiter("redis://localhost", {"api": "1/s"}, keepalive=timedelta(seconds=5), fallback_share=0.5)
"""
    wrong = ["Limiter(colour='red')", "Limiter(deadline=b'1s')", "Limiter(outage='deni')", "AsyncLimiter(key_func=len)"]
    for number, line in enumerate(["", *wrong]):
        path = tmp_path / f"program{number}.py"
        path.write_text(program + line)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *sorted(tmp_path.glob("*.py"))]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PACKAGE / "python")}, **CAPTURED)
    found = {line.split(":")[0] for line in done.stdout.splitlines() if ": error: " in line}
    assert found == {f"program{number}.py" for number in range(1, len(wrong) + 1)}, done.stdout
