"""A configuration as Kubernetes manifests: a Deployment, or a StatefulSet over several hosts."""

from typing import Any

from outdraft.emit import container
from outdraft.emit.config import EngineConfig
from outdraft.emit.quoting import comments
from outdraft.emit.shell import heading
from outdraft.emit.yaml import Comment, TextBlock, YamlMap, yaml_lines

_RANK = "${HOSTNAME##*-}"
_HOST_CACHE = "/var/lib/outdraft/huggingface"


def k8s(config: EngineConfig) -> str:
    config = container.in_container(config)
    name = f"{config.engine}-server"
    # Of several hosts only the first answers requests.
    answers = {"statefulset.kubernetes.io/pod-name": f"{name}-0"} if config.hosts > 1 else None
    ports = [{"name": "http", "port": config.port}]
    service = {"selector": answers or {"app": name}, "ports": ports}
    documents = [_manifest("Service", name, spec=service)]
    if config.files:
        data = {file: TextBlock(text) for file, text in config.files.items()}
        documents.insert(0, _manifest("ConfigMap", name, data=data))
    if config.cluster is not None:
        peers = {
            Comment("the hosts find each other by it, before they are ready"): None,
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": name},
            "ports": [{"name": "peers", "port": config.cluster.port}],
        }
        documents.append(_manifest("Service", f"{name}-peers", spec=peers))
    documents.append(_workload(config, name))
    texts = ["\n".join(yaml_lines(document)) for document in documents]
    return "\n".join([*comments(heading(config)), "\n---\n".join(texts), ""])


def _manifest(kind: str, name: str, api: str = "v1", **content: Any) -> YamlMap:
    manifest: YamlMap = {"apiVersion": api, "kind": kind, "metadata": {"name": name}}
    manifest |= content.items()
    return manifest


def _workload(config: EngineConfig, name: str) -> YamlMap:
    labels = {"app": name}
    pod: YamlMap = {
        Comment("else variables like VLLM_PORT come from services, and the engine reads them"):
            None,
        "enableServiceLinks": False,
    }  # fmt: skip
    if config.hosts > 1:
        kind = "StatefulSet"
        strategy: YamlMap = {
            "serviceName": f"{name}-peers",
            Comment("all at once: none is ready before all are there"): None,
            "podManagementPolicy": "Parallel",
        }
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        pod |= {Comment("one on each host"): None, "affinity": {"podAntiAffinity": rule}}
    else:
        kind = "Deployment"
        first = Comment("the old one first gives its GPUs back")
        strategy = {first: None, "strategy": {"type": "Recreate"}} if config.gpus else {}
    volumes = _volumes(config, name)
    pod["containers"] = [
        {
            "name": config.engine,
            Comment(config.container.reason): None,
            "image": config.container.image,
            **container.command(
                config, "command", "args", rank=_RANK, head=f"{name}-0.{name}-peers"
            ),
            "env": [
                *({"name": key, "value": value} for key, value in config.env.items()),
                *(_token() if container.may_need_token(config) else ()),
            ],
            "ports": [{"containerPort": config.port}],
            "resources": {"limits": {"nvidia.com/gpu": str(config.gpus)}} if config.gpus else {},
            **_probes(config),
            "volumeMounts": [{"name": each, "mountPath": at} for each, (at, _) in volumes.items()],
        }
    ]
    stays = " stays on the host" if config.container.host_cache else ", for as long as the pod"
    pod |= {
        Comment(f"shm: for the processes of one server; hub: what was fetched{stays};"): None,
        Comment("model-…: folders that every node has"): None,
        "volumes": [{"name": each, **source} for each, (_, source) in volumes.items()],
    }
    spec = {
        "replicas": config.hosts,
        **strategy,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _manifest(kind, name, "apps/v1", spec=spec)


def _token() -> list[Any]:
    make = (
        f"kubectl create secret generic {container.SECRET} --from-env-file={container.TOKEN_FILE}"
    )
    secret = {"name": container.SECRET, "key": container.TOKEN, "optional": True}
    return [
        Comment(f"gated models need a token: {make}"),
        Comment(f"({container.TOKEN_FILE} has a line {container.TOKEN}=…); others do without"),
        {"name": container.TOKEN, "valueFrom": {"secretKeyRef": secret}},
    ]


def _probes(config: EngineConfig) -> YamlMap:
    probe: YamlMap = {"httpGet": {"path": "/health", "port": config.port}}
    if config.hosts > 1:
        probe = {"exec": {"command": ["sh", "-c", container.health_command(config, _RANK)]}}
    probe["timeoutSeconds"] = 10
    patience = {"periodSeconds": 10, "failureThreshold": 180}  # half an hour
    return {
        Comment("loading and warming up take minutes: nothing else is asked before"): None,
        "startupProbe": probe | patience,
        "readinessProbe": probe,
        "livenessProbe": probe | {"periodSeconds": 30, "failureThreshold": 4},
    }


def _volumes(config: EngineConfig, name: str) -> dict[str, tuple[str, YamlMap]]:
    """Name → (where the container sees it, its source)."""
    memory = {"medium": "Memory", "sizeLimit": f"{container.SHARED_MEMORY_GIB}Gi"}
    volumes: dict[str, tuple[str, YamlMap]] = {"shm": ("/dev/shm", {"emptyDir": memory})}
    if config.container.fetches_models:
        cache = {"path": _HOST_CACHE, "type": "DirectoryOrCreate"}
        own: YamlMap = {"hostPath": cache} if config.container.host_cache else {"emptyDir": {}}
        volumes["hub"] = (config.container.cache, own)
    for number, path in enumerate(container.mounts(config)):
        volumes[f"model-{number}"] = (path, {"hostPath": {"path": path}})
    if config.files:
        volumes["files"] = (container.FILES, {"configMap": {"name": name}})
    return volumes
