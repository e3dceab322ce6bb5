"""Starts the server as the manifests of Kubernetes start it, after their fields have been compared.

Kubernetes itself is not run. The manifests are read strictly: a duplicate key of a map, a reference that leads nowhere,
or a field of a container that is not known here is a failure. The command of the container is then run with volumes
that are laid out and changed as the kubelet does it. Ends in cargo's form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import yaml
from own_redis import Redis
from own_server import LIMITS, POLYLIMIT, SERVER, ask, check_decisions, port_of, run_checks, running, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The fields of a container that the manifests use.
CONTAINER = {
    *("name", "image", "args", "env", "ports", "volumeMounts", "resources", "securityContext", "restartPolicy"),
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
#: How long the server goes on after SIGTERM, by its default of --drain.
DRAIN = 10


class Strict(yaml.SafeLoader):
    """Reads YAML, and refuses a duplicate key of a map."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 as in yaml
        """Read a map."""
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise AssertionError(f"a duplicate key: {keys}{node.start_mark}")
        return super().construct_mapping(node, deep)


def read(name: str) -> dict[str, dict[str, Any]]:
    """Read a file's objects by their kinds, of which each stands once."""
    documents = list(yaml.load_all((SERVER / name).read_text(), Strict))
    kinds = {document["kind"]: document for document in documents}
    assert len(kinds) == len(documents), [document["kind"] for document in documents]
    return kinds


class Pod:
    """The pod of a deployment, with the container of the server."""

    def __init__(self, deployment: dict[str, Any], among: str) -> None:
        self.labels: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"] == self.labels
        self.spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
        self.container: dict[str, Any] = next(one for one in self.spec[among] if one["name"] == "polylimit")
        self.arguments: list[str] = self.container["args"]
        self.ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}

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
        assert self.spec["terminationGracePeriodSeconds"] > pause + DRAIN
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
    kinds = read("kubernetes-sidecar.yaml")
    pod = Pod(kinds["Deployment"], "initContainers")
    pod.check()
    # A container of the start that goes on.
    assert pod.container["restartPolicy"] == "Always"
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == pod.labels
    shop = pod.spec["containers"][0]
    addresses = [variable["value"] for variable in shop["env"] if variable["name"] == "LIMITS"]
    assert addresses == [f"http://127.0.0.1:{port_of(pod.arguments, '--listen')}"], addresses
    with Redis() as redis, pod.runs(redis, lambda _: None) as (server, folder):
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


def check_service() -> None:
    """Run the server of a cluster, with the document of the ConfigMap, and change that."""
    kinds = read("kubernetes-service.yaml")
    pod = Pod(kinds["Deployment"], "containers")
    pod.check()
    budget, deployment = kinds["PodDisruptionBudget"]["spec"], kinds["Deployment"]["spec"]
    assert budget["selector"]["matchLabels"] == kinds["Service"]["spec"]["selector"] == pod.labels
    assert budget["maxUnavailable"] < deployment["replicas"], budget
    (port,) = kinds["Service"]["spec"]["ports"]
    assert pod.ports[port["targetPort"]] == port_of(pod.arguments, "--listen"), port
    names = [volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume]
    assert names == [kinds["ConfigMap"]["metadata"]["name"]], names
    document: str = kinds["ConfigMap"]["data"]["limits.toml"]
    assert tomllib.loads(document)["polylimit"] == 1

    def prepare(folder: Path) -> None:
        mount(folder / "limits", 1, {"limits.toml": document})
        mount(folder / "callers", 1, {"tokens": (folder / "tokens").read_text()})

    with Redis() as redis, pod.runs(redis, prepare) as (server, folder):
        data, admin = server.listeners
        until(lambda: set(pod.probed(admin).values()) == {200}, server)
        peek: dict[str, object] = {"policy": "api", "key": "k"}
        assert json.loads(ask(data, "/v1/peek", peek)[1])["limit"] == 100
        mount(folder / "limits", 2, {"limits.toml": LIMITS})
        until(lambda: json.loads(ask(data, "/v1/peek", peek)[1])["limit"] == 2, server)
        check_decisions(data)


if __name__ == "__main__":
    sys.exit(run_checks({"sidecar of Kubernetes": check_sidecar, "service of Kubernetes": check_service}))
