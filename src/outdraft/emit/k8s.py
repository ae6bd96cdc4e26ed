"""A configuration as Kubernetes manifests: a Deployment, or a StatefulSet over several hosts."""

from __future__ import annotations

from outdraft.emit.config import DIST_PORT, RAY_PORT, EngineConfig
from outdraft.emit.container import (
    CACHE,
    FILES,
    SHARED_MEMORY_GIB,
    command_items,
    health,
    image,
    inside,
    mounts,
    quoted,
    script,
)
from outdraft.emit.remarks import heading

_START_S = 1800  # loading and warming up
_HOST_CACHE = "/var/lib/outdraft/huggingface"


def k8s(config: EngineConfig) -> str:
    config = inside(config)
    name = f"{config.engine}-server"
    documents = [_service(config, name)]
    if config.files:
        documents.insert(0, _config_map(config, name))
    if config.hosts > 1:
        documents.append(_peers(config, name))
    documents.append(_workload(config, name))
    head = [f"# {line}" for line in heading(config)]
    return "\n".join([*head, "\n---\n".join("\n".join(lines) for lines in documents)]) + "\n"


def _workload(config: EngineConfig, name: str) -> list[str]:
    spread = config.hosts > 1
    lines = [
        "apiVersion: apps/v1",
        f"kind: {'StatefulSet' if spread else 'Deployment'}",
        "metadata:",
        f"  name: {name}",
        "spec:",
        f"  replicas: {config.hosts}",
    ]
    if spread:
        lines += [f"  serviceName: {name}-peers",
                  "  # all at once: none is ready before all are there",
                  "  podManagementPolicy: Parallel"]  # fmt: skip
    else:
        lines += ["  # the old one first gives its GPUs back", "  strategy: {type: Recreate}"]
    lines += [
        "  selector:",
        f"    matchLabels: {{app: {name}}}",
        "  template:",
        "    metadata:",
        f"      labels: {{app: {name}}}",
        "    spec:",
        "      # else variables like VLLM_PORT come from services, and the engine reads them",
        "      enableServiceLinks: false",
        *_apart(config, name),
        "      containers:",
        f"        - name: {config.engine}",
        f"          # {image(config).why}",
        f"          image: {quoted(image(config).name)}",
        *_command(config, name),
        *_environment(config),
        f"          ports: [{{containerPort: {config.port}}}]",
        *_resources(config),
        *_probes(config),
        *_volumes(config, name),
    ]
    return lines


def _apart(config: EngineConfig, name: str) -> list[str]:
    if config.hosts == 1:
        return []
    return [
        "      # one on each host",
        "      affinity:",
        "        podAntiAffinity:",
        "          requiredDuringSchedulingIgnoredDuringExecution:",
        f"            - labelSelector: {{matchLabels: {{app: {name}}}}}",
        "              topologyKey: kubernetes.io/hostname",
    ]


def _command(config: EngineConfig, name: str) -> list[str]:
    if config.hosts > 1:
        lines = script(config, "${HOSTNAME##*-}", f"{name}-0.{name}-peers")
        return [
            '          command: ["sh", "-c"]',
            "          args:",
            "            - |",
            *(f"              {line}" for line in lines),
        ]
    lines = []
    skips = {"llamacpp": 1, "sglang": 3}.get(config.engine, 2)
    if config.engine == "llamacpp":
        lines.append("          # its image starts llama-server by itself")
    else:
        entry = ", ".join(quoted(word) for word in config.program[:skips])
        lines.append(f"          command: [{entry}]")
    lines.append("          args:")
    for why, words in command_items(config, skips=skips):
        lines += [f"            # {line}" for line in why if line and words]
        lines += [f"            - {quoted(word)}" for word in words]
    return lines


def _environment(config: EngineConfig) -> list[str]:
    if not config.env:
        return []
    return [
        "          env:",
        *(f"            - {{name: {key}, value: {quoted(value)}}}"
          for key, value in config.env.items()),
    ]  # fmt: skip


def _resources(config: EngineConfig) -> list[str]:
    if config.gpus == 0:
        return []
    return [
        "          resources:",
        "            # GPUs are asked for as limits",
        f'            limits: {{nvidia.com/gpu: "{config.gpus}"}}',
    ]


def _probes(config: EngineConfig) -> list[str]:
    if config.hosts > 1:  # only the first host answers requests
        test = f'test "${{HOSTNAME##*-}}" != 0 || {health(config)}'
        asked = f'exec: {{command: ["sh", "-c", {quoted(test)}]}}'
    else:
        asked = f"httpGet: {{path: /health, port: {config.port}}}"
    return [
        "          # loading and warming up take minutes: nothing else is asked before",
        "          startupProbe:",
        f"            {asked}",
        "            periodSeconds: 10",
        "            timeoutSeconds: 10",
        f"            failureThreshold: {_START_S // 10}",
        "          readinessProbe:",
        f"            {asked}",
        "            timeoutSeconds: 10",
        "          livenessProbe:",
        f"            {asked}",
        "            periodSeconds: 30",
        "            timeoutSeconds: 10",
        "            failureThreshold: 4",
    ]


def _volumes(config: EngineConfig, name: str) -> list[str]:
    """Folder of the host or other source → where the container sees it."""
    seen = [("shm", "/dev/shm", f"emptyDir: {{medium: Memory, sizeLimit: {SHARED_MEMORY_GIB}Gi}}")]
    if config.engine != "llamacpp":
        kept = f"hostPath: {{path: {_HOST_CACHE}, type: DirectoryOrCreate}}"
        seen.append(("hub", CACHE, kept))
    for number, path in enumerate(mounts(config)):
        seen.append((f"model-{number}", path, f"hostPath: {{path: {quoted(path)}}}"))
    if config.files:
        seen.append(("files", FILES, f"configMap: {{name: {name}}}"))
    return [
        "          volumeMounts:",
        *(f"            - {{name: {each}, mountPath: {quoted(at)}}}" for each, at, _ in seen),
        "      volumes:",
        "        # shm: for the processes of one server; hub: what was fetched stays on the host;",
        "        # model-…: folders that every node has",
        *(line for each, _, source in seen for line in (f"        - name: {each}",
                                                        f"          {source}")),
    ]  # fmt: skip


def _service(config: EngineConfig, name: str) -> list[str]:
    chosen = (
        f"{{statefulset.kubernetes.io/pod-name: {name}-0}}"  # the others answer no requests
        if config.hosts > 1
        else f"{{app: {name}}}"
    )
    return [
        "apiVersion: v1",
        "kind: Service",
        "metadata:",
        f"  name: {name}",
        "spec:",
        f"  selector: {chosen}",
        f"  ports: [{{name: http, port: {config.port}}}]",
    ]


def _peers(config: EngineConfig, name: str) -> list[str]:
    port = RAY_PORT if config.engine == "vllm" else DIST_PORT
    return [
        "# the hosts find each other by it, before they are ready",
        "apiVersion: v1",
        "kind: Service",
        "metadata:",
        f"  name: {name}-peers",
        "spec:",
        "  clusterIP: None",
        "  publishNotReadyAddresses: true",
        f"  selector: {{app: {name}}}",
        f"  ports: [{{name: peers, port: {port}}}]",
    ]


def _config_map(config: EngineConfig, name: str) -> list[str]:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {name}", "data:"]
    for file, text in config.files.items():
        lines += [f"  {file}: |", *(f"    {line}" for line in text.rstrip("\n").split("\n"))]
    return lines
