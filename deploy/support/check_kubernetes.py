"""Starts the server as the manifests of Kubernetes start it, after their fields have been compared.

Kubernetes itself is not run. The manifests are read strictly: a duplicate key of a map, a reference that leads nowhere,
or a field of a container that is not known here is a failure. The command of the container is then run with volumes
that are laid out and changed as the kubelet does it. With the name of a file, that is what the chart has rendered with
TLS, and the only one that is checked. Ends in cargo's form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from own_redis import Redis
from own_server import (
    LIMITS,
    POLYLIMIT,
    SERVER,
    ask,
    certify,
    check_decisions,
    port_of,
    run_checks,
    running,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: The fields of a container that the manifests use.
CONTAINER = {
    *("name", "image", "imagePullPolicy", "args", "env", "ports", "volumeMounts", "resources"),
    *("securityContext", "restartPolicy"),
    *("startupProbe", "livenessProbe", "readinessProbe", "lifecycle"),
}
PROBES = {"startupProbe": 503, "livenessProbe": 200, "readinessProbe": 503}
#: What the server needs, and no more.
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}


class Strict(yaml.SafeLoader):
    """Reads YAML, and refuses a duplicate key of a map."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 as in yaml
        """Read a map."""
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise AssertionError(f"a duplicate key: {keys}{node.start_mark}")
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read a file's objects by their kinds, of which each stands once; the second service is that of metrics."""
    parts = yaml.load_all(path.read_text(), Strict)
    documents = [document for document in parts if document is not None]
    metrics = {id(each) for each in documents if each["metadata"]["name"].endswith("-metrics")}
    kinds = {each["kind"] + " of metrics" * (id(each) in metrics): each for each in documents}
    assert len(kinds) == len(documents), [document["kind"] for document in documents]
    return kinds


class Pod:
    """The pod of a deployment, with the container of the server."""

    def __init__(self, deployment: dict[str, Any], among: str) -> None:
        self.labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
        self.check_selects(deployment["spec"]["selector"]["matchLabels"])
        self.spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
        self.container: dict[str, Any] = next(one for one in self.spec[among] if one["name"] == "polylimit")
        self.arguments: list[str] = self.container["args"]
        self.ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}

    def check_selects(self, labels: dict[str, str]) -> None:
        """Check that a selector finds the pod."""
        assert labels.items() <= self.labels.items(), labels

    def check(self) -> None:
        """Compare what the fields say with each other, and with what the server needs."""
        assert set(self.container) <= CONTAINER, set(self.container) - CONTAINER
        security = {**self.spec.get("securityContext", {}), **self.container["securityContext"]}
        assert security.items() >= RESTRICTED.items(), security
        resources = self.container["resources"]
        assert {"cpu", "memory"} <= set(resources["requests"]) and "memory" in resources["limits"], resources
        assert [variable["name"] for variable in self.container["env"]] == ["POLYLIMIT_STORE"]
        assert self.ports["admin"] == port_of(self.arguments, "--admin"), self.arguments
        pause = self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drain = int(self.arguments[self.arguments.index("--drain") + 1].removesuffix("s"))
        assert self.spec["terminationGracePeriodSeconds"] > pause + drain
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in self.container["volumeMounts"]}
        for option in {"--policies", "--tokens"} & set(self.arguments):
            path = self.arguments[self.arguments.index(option) + 1]
            folder, _, file = path.rpartition("/")
            source = mounts[folder].get("configMap") or mounts[folder]["secret"]
            assert file in [item["path"] for item in source["items"]], path

    def probed(self, admin: str) -> dict[str, int]:
        """Send the probes to the admin listener, and give their statuses."""
        statuses = {}
        for name in PROBES:
            request = self.container[name]["httpGet"]
            assert request["port"] == "admin", request
            statuses[name] = ask(admin, request["path"])[0]
        return statuses

    def runs(self, redis: Redis, prepare: Callable[[Path], None]) -> Any:  # noqa: ANN401 a context manager
        """Run the container's command."""
        return running(self.arguments, {"POLYLIMIT_STORE": f"{redis.url}?deadline=5s"}, prepare=prepare)


def check_sidecar() -> None:
    """Run the server of a pod, with limits that are published in Redis."""
    kinds = read(SERVER / "kubernetes-sidecar.yaml")
    pod = Pod(kinds["Deployment"], "initContainers")
    pod.check()
    # A container of the start that goes on.
    assert pod.container["restartPolicy"] == "Always"
    pod.check_selects(kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    shop = pod.spec["containers"][0]
    addresses = [variable["value"] for variable in shop["env"] if variable["name"] == "LIMITS"]
    assert addresses == [f"http://127.0.0.1:{port_of(pod.arguments, '--listen')}"], addresses
    with Redis() as redis, pod.runs(redis, mount_callers) as (server, folder):
        data, admin = server.listeners
        # Until a document is published, the pod lives and is not ready.
        assert pod.probed(admin) == PROBES
        put = ["policies", "put", str(folder / "limits.toml"), "--expect", "0", "--why", "test"]
        environment = {**os.environ, "POLYLIMIT_STORE": f"{redis.url}?deadline=5s"}
        subprocess.run([POLYLIMIT, *put], check=True, capture_output=True, env=environment)
        until(lambda: set(pod.probed(admin).values()) == {200}, server)
        check_decisions(data)


def mount(folder: Path, version: int, files: dict[str, str]) -> None:
    """Lay out a volume as the kubelet does, or change it: files are links through `..data`, which is exchanged."""
    folder.mkdir(exist_ok=True)
    data = folder / f"..version_{version}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(data.name)
    (folder / "..data_tmp").rename(folder / "..data")


def mount_callers(folder: Path) -> None:
    """Lay out the volume with the file of callers."""
    mount(folder / "callers", 1, {"tokens": (folder / "tokens").read_text()})


def read_service(path: Path) -> tuple[dict[str, dict[str, Any]], Pod]:
    """Read the objects of the server of a cluster, and compare what they say of each other."""
    kinds = read(path)
    pod = Pod(kinds["Deployment"], "containers")
    pod.check()
    budget, deployment = kinds["PodDisruptionBudget"]["spec"], kinds["Deployment"]["spec"]
    pod.check_selects(budget["selector"]["matchLabels"])
    pod.check_selects(kinds["Service"]["spec"]["selector"])
    assert budget["maxUnavailable"] < deployment["replicas"], budget
    (port,) = kinds["Service"]["spec"]["ports"]
    assert pod.ports[port["targetPort"]] == port_of(pod.arguments, "--listen"), port
    network = kinds["NetworkPolicy"]["spec"]
    pod.check_selects(network["podSelector"]["matchLabels"])
    opened = {port["port"] for rule in network["ingress"] for port in rule["ports"]}
    assert opened == set(pod.ports), opened
    # A rule without peers is one for everybody.
    assert all(rule["from"] for rule in network["ingress"]), network
    return kinds, pod


def check_service() -> None:
    """Run the server of a cluster, with the document of the ConfigMap, and change that."""
    kinds, pod = read_service(SERVER / "kubernetes-service.yaml")
    names = [volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume]
    assert names == [kinds["ConfigMap"]["metadata"]["name"]], names
    document: str = kinds["ConfigMap"]["data"]["limits.toml"]
    assert tomllib.loads(document)["polylimit"] == 1

    def prepare(folder: Path) -> None:
        mount(folder / "limits", 1, {"limits.toml": document})
        mount_callers(folder)

    with Redis() as redis, pod.runs(redis, prepare) as (server, folder):
        data, admin = server.listeners
        until(lambda: set(pod.probed(admin).values()) == {200}, server)
        peek: dict[str, object] = {"policy": "api", "key": "k"}
        assert json.loads(ask(data, "/v1/peek", peek)[1])["limit"] == 100
        mount(folder / "limits", 2, {"limits.toml": LIMITS})
        until(lambda: json.loads(ask(data, "/v1/peek", peek)[1])["limit"] == 2, server)
        check_decisions(data)


def check_encrypted(path: Path) -> None:
    """Run the server of a cluster with TLS, which needs no --insecure, and whose probes use it."""
    kinds, pod = read_service(path)
    assert "--insecure" not in pod.arguments, pod.arguments
    assert {pod.container[name]["httpGet"]["scheme"] for name in PROBES} == {"HTTPS"}
    (endpoint,) = kinds["ServiceMonitor"]["spec"]["endpoints"]
    service = kinds["Service of metrics"]
    assert kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    pod.check_selects(service["spec"]["selector"])
    (port,) = service["spec"]["ports"]
    assert endpoint["scheme"] == "https", endpoint
    assert endpoint["port"] == port["name"], endpoint
    assert pod.ports[port["targetPort"]] == port["port"] == port_of(pod.arguments, "--admin"), port

    def prepare(folder: Path) -> None:
        mount(folder / "limits", 1, {"limits.toml": LIMITS})
        mount_callers(folder)
        certify(folder, 30)
        names = {"tls.crt": "certificate.pem", "tls.key": "key.pem"}
        mount(folder / "tls", 1, {name: (folder / made).read_text() for name, made in names.items()})

    with Redis() as redis, pod.runs(redis, prepare) as (server, _):
        data, admin = server.listeners
        until(lambda: set(pod.probed(admin).values()) == {200}, server)
        assert ask(admin, "/metrics")[0] == 200
        check_decisions(data)


if __name__ == "__main__":
    checks = {"sidecar of Kubernetes": check_sidecar, "service of Kubernetes": check_service}
    if sys.argv[1:]:
        checks = {"service of Kubernetes with TLS": lambda: check_encrypted(Path(sys.argv[1]))}
    sys.exit(run_checks(checks))
