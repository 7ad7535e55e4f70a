"""The Kubernetes manifests: valid for its API, restricted as its strictest policy asks, with commands that exist.

No test starts them: there is no cluster here.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from auditlake.cli.main import auditlake
from auditlake.config import Settings

_FOLDER = Path(__file__).parents[2] / "conf" / "kubernetes"
_CUSTOMIZATION = yaml.safe_load((_FOLDER / "kustomization.yaml").read_text())
_VERSIONS = ("1.30", "1.37")


def _objects() -> Iterator[dict[str, Any]]:
    for name in _CUSTOMIZATION["resources"]:
        yield from yaml.safe_load_all((_FOLDER / name).read_text())


def _pods() -> Iterator[Mapping[str, Any]]:
    for each in _objects():
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield spec["template"]


def test_every_file_is_a_resource() -> None:
    """`kubectl apply -k` applies all of them."""
    files = {path.name for path in _FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(_CUSTOMIZATION["resources"])


@pytest.mark.parametrize("version", _VERSIONS)
def test_manifests_are_valid(version: str) -> None:
    """Each object has the fields of its kind, and no other."""
    for each in _objects():
        kubernetes_validate.validate(each, version, strict=True)


def test_pods_are_restricted() -> None:
    """Not root, no privileges, a root file system that nothing writes to, bounded memory, no token of the cluster."""
    pods = list(_pods())
    assert len(pods) == 3
    for pod in (each["spec"] for each in pods):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_capture_has_memory_for_the_largest_message() -> None:
    """Libpq holds one of 1 GB twice; killed by it, follow would get the same one after each start."""
    (pod,) = (each for each in _pods() if each["spec"]["containers"][0]["args"][0] == "follow")
    (container,) = pod["spec"]["containers"]
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    assert int(limit.removesuffix("Gi")) * 2**30 >= 2 * 2**30 + 600 * 2**20


def test_commands_and_settings_exist() -> None:
    """Click parses the arguments, and each variable is a setting; the password comes from a secret."""
    for pod in _pods():
        (container,) = pod["spec"]["containers"]
        name, *arguments = container["args"]
        auditlake.commands[name].make_context(name, arguments)
        assert all("valueFrom" in variable for variable in container.get("env", []))
    (settings,) = (each["data"] for each in _objects() if each["kind"] == "ConfigMap")
    for variable in settings:
        assert variable.removeprefix("AUDITLAKE_").lower() in Settings.model_fields


def test_one_process_follows_and_probes_do_not_ask_the_source() -> None:
    """A second reader of the slot would be refused; /healthz is well while the source is down."""
    (following,) = (each["spec"] for each in _objects() if each["kind"] == "StatefulSet")
    assert following["replicas"] == 1
    for pod in _pods():
        (container,) = pod["spec"]["containers"]
        paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
        expected = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        assert paths == ({} if container["name"] == "maintain" else expected)


def test_every_pod_has_a_network_policy() -> None:
    """What is not named there is refused, in and out."""
    policies = [each["spec"] for each in _objects() if each["kind"] == "NetworkPolicy"]
    labels = [pod["metadata"]["labels"] for pod in _pods()]
    chosen = [policy["podSelector"]["matchLabels"] for policy in policies]
    assert sorted(map(str, chosen)) == sorted(map(str, labels))
    assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)
