"""Every form says the same, is what it claims to be, and says why."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from outdraft.backends.backend import Serving
from outdraft.backends.lookup import ENGINES
from outdraft.emit import FORMS, EngineConfig, engine_config, write_form
from outdraft.errors import OptionError
from outdraft.speculation import Speculation
from tests.emit.reading import argv_of, container_of, other_methods, servings, speculations

VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23", "llamacpp": "any", "outdraft": "any"}


def made(engine: str, speculation: Speculation, serving: Serving, hosts: int = 1) -> EngineConfig:
    return engine_config(engine, speculation, serving, version=VERSIONS[engine], hosts=hosts)


def possible() -> list[EngineConfig]:
    configs = []
    for engine in ENGINES:
        names = ("org/target", "org/draft", "org/head")
        if engine == "llamacpp":
            names = ("/models/t.gguf", "/models/d.gguf", "/models/h.gguf")
        for serving, hosts in servings(names[0]):
            for speculation in (*speculations(*names[1:]), *other_methods("org/medusa")):
                try:
                    configs.append(made(engine, speculation, serving, hosts))
                except OptionError:
                    continue
    return configs


CONFIGS = possible()


def test_there_is_something_for_every_engine() -> None:
    counts = {engine: sum(c.engine == engine for c in CONFIGS) for engine in ENGINES}
    assert all(number > 5 for number in counts.values()), counts
    assert {c.hosts for c in CONFIGS} == {1, 2}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_run_the_same_command(form: str) -> None:
    for config in CONFIGS:
        argv = argv_of(write_form(config, form), form)
        if form in ("compose", "k8s"):
            assert argv[argv.index("--host") + 1] == "0.0.0.0"
        assert _neutral(argv) == _neutral(config.argv), config.summary


def _neutral(argv: tuple[str, ...] | list[str]) -> list[str]:
    """Without what differs by form: addresses, ranks, the place of a file."""
    words = list(argv)
    for flag in ("--host", "--node-rank", "--dist-init-addr", "--speculative-adaptive-config"):
        if flag in words:
            words[words.index(flag) + 1] = "…"
    return words


@pytest.mark.parametrize("form", FORMS)
def test_no_line_is_unexplained(form: str) -> None:
    """A flag that we set has its reason; what a user adds has not."""
    for config in CONFIGS:
        assert all(flag.reason for flag in config.flags), [
            f.words for f in config.flags if not f.reason
        ]
        text = write_form(config, form)
        for flag in config.flags:
            assert flag.reason in text


def test_a_shell_can_read_it() -> None:
    for config in CONFIGS:
        subprocess.run(["sh", "-n"], input=write_form(config, "cli"), text=True, check=True)


def test_json_has_values_and_not_only_texts() -> None:
    config = made("vllm", Speculation("ngram", k=4), Serving("org/target", max_num_seqs=8))
    value = json.loads(write_form(config, "json"))
    assert value["config"]["max-num-seqs"] == 8
    assert value["config"]["enable-per-request-metrics"] is True
    assert value["config"]["speculative-config"]["num_speculative_tokens"] == 4
    assert value["config"]["model"] == "org/target"


def test_a_compose_file_has_what_a_gpu_server_needs() -> None:
    config = made("vllm", Speculation("ngram"), Serving("/models/target", tensor_parallel_size=2))
    container = container_of(write_form(config, "compose"), "compose")
    [device] = container["deploy"]["resources"]["reservations"]["devices"]
    assert device["count"] == 2
    assert container["image"].endswith("0.32.0")
    assert "/health" in container["healthcheck"]["test"][1]
    assert "/models/target:/models/target:ro" in container["volumes"]
    assert container["shm_size"]
    assert container["environment"]["HF_HUB_OFFLINE"] == "1"


def test_manifests_are_complete() -> None:
    config = made("vllm", Speculation("ngram"), Serving("org/target", tensor_parallel_size=4))
    service, deployment = yaml.safe_load_all(write_form(config, "k8s"))
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    container = container_of(write_form(config, "k8s"), "k8s")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert container["startupProbe"]["httpGet"]["path"] == "/health"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    pod = deployment["spec"]["template"]["spec"]
    assert {volume["name"] for volume in pod["volumes"]} == mounted


def test_a_token_comes_from_a_secret_and_never_stands_in_a_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for hosts in (1, 2):
        config = made("vllm", Speculation("ngram"), Serving("org/gated"), hosts)
        assert all("hf_secret" not in write_form(config, form) for form in FORMS)
        manifest = container_of(write_form(config, "k8s"), "k8s")
        [token] = [each for each in manifest["env"] if each["name"] == "HF_TOKEN"]
        secret = {"name": "hub-token", "key": "HF_TOKEN", "optional": True}
        assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}
        service = container_of(write_form(config, "compose"), "compose")
        assert service["env_file"] == [{"path": "hub.env", "required": False}]
        assert "HF_TOKEN" not in service["environment"]


@pytest.mark.parametrize(
    ("engine", "target"), [("vllm", "/models/target"), ("llamacpp", "/models/target.gguf")]
)
def test_models_that_are_here_need_no_token(engine: str, target: str) -> None:
    config = made(engine, Speculation("ngram"), Serving(target))
    assert "HF_TOKEN" not in write_form(config, "k8s")
    assert "env_file" not in container_of(write_form(config, "compose"), "compose")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_probed_and_gets_its_gpus(engine: str) -> None:
    target = "/models/t.gguf" if engine == "llamacpp" else "org/target"
    size = 1 if engine == "outdraft" else 2
    config = made(engine, Speculation("ngram"), Serving(target, tensor_parallel_size=size))
    pod = container_of(write_form(config, "k8s"), "k8s")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert pod[probe]["httpGet"] == {"path": "/health", "port": 8000}
    waits = pod["startupProbe"]
    assert waits["periodSeconds"] * waits["failureThreshold"] >= 1800, "large models load for long"
    service = container_of(write_form(config, "compose"), "compose")
    assert "/health" in service["healthcheck"]["test"][1]
    assert service["healthcheck"]["start_period"] == "30m"
    if engine == "outdraft":  # it runs on the CPU
        assert ("resources" in pod, "deploy" in service) == (False, False)
        return
    assert pod["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["count"], device["capabilities"]) == (2, ["gpu"])


def test_several_hosts_are_a_stateful_set_whose_first_answers() -> None:
    config = made("vllm", Speculation("ngram"), Serving("org/t", tensor_parallel_size=8), hosts=2)
    text = write_form(config, "k8s")
    service, peers, workload = yaml.safe_load_all(text)
    assert workload["kind"] == "StatefulSet"
    assert workload["spec"]["replicas"] == 2
    assert workload["spec"]["serviceName"] == peers["metadata"]["name"]
    assert service["spec"]["selector"]["statefulset.kubernetes.io/pod-name"].endswith("-0")
    assert "ray start --head" in text
    assert "--pipeline-parallel-size 2" in text


def test_scripts_of_several_hosts_are_scripts() -> None:
    for config in (c for c in CONFIGS if c.hosts > 1):
        container = container_of(write_form(config, "k8s"), "k8s")
        subprocess.run(["sh", "-n"], input=container["args"][0], text=True, check=True)
        other = container_of(write_form(config, "compose"), "compose")
        script = other["command"][0].replace("$$", "$")
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_a_schedules_file_travels_with_the_configuration() -> None:
    head = Speculation("eagle", draft="org/head", k=4, schedule=((1, 8, 4), (9, 64, 0)))
    config = made("sglang", head, Serving("org/target"))
    assert '"9": {"candidate_steps": [0]}' in write_form(config, "cli")
    compose = yaml.safe_load(write_form(config, "compose"))
    [content] = compose["configs"].values()
    assert json.loads(content["content"])["1"] == {"candidate_steps": [4]}
    config_map, *_ = yaml.safe_load_all(write_form(config, "k8s"))
    assert config_map["kind"] == "ConfigMap"
    [text] = config_map["data"].values()
    assert json.loads(text)["9"] == {"candidate_steps": [0]}
    argv = argv_of(write_form(config, "k8s"), "k8s")
    assert argv[argv.index("--speculative-adaptive-config") + 1].startswith("/etc/outdraft/")


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(OptionError, match="compose"):
        write_form(CONFIGS[0], "helm")
