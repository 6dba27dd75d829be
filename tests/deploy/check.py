"""The files of deploy/: Helm's own engine renders the chart with several values, Kubernetes' schemas check what comes of it and
KServe's container, the Compose specification's reader takes compose.yaml, and the program itself reads each command line.
usage: check.py NEREID"""
import os
import pathlib
import subprocess
import sys
import tempfile

import compose_spec
import helm_python
import kubernetes_validate
import yaml

NEREID = os.path.abspath(sys.argv[1])
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
MODEL = str(ROOT / "models" / "quickstart")
KUBERNETES = "1.36"

# Values of the chart, and texts that the manifests then have.
VALUES = (
    ({}, ["/usr/lib/nereid/models/quickstart", "terminationGracePeriodSeconds: 45", "image: \"nereid:"]),
    ({"replicas": 3, "gpus": 1, "model": "hf://org/name", "modelName": "my model", "hubTokenSecret": "hub", "apiKeysSecret": "keys",
      "options": {"max-batch-size": 8, "kv-cache-type": "int8", "ollama": True, "strict-fields": False, "kv-cache-fraction": 0.5},
      "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}], "cache": {"existingClaim": "engines"}, "stopSeconds": 120,
      "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
      "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}], "service": {"type": "LoadBalancer", "port": 80},
      "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}]},
     ["nvidia.com/gpu: \"1\"", "--max-batch-size=8", "--kv-cache-type=int8", "--ollama", "--model-name=my model",
      "terminationGracePeriodSeconds: 135", "--api-key-file=/etc/nereid/keys", "claimName: engines", "port: 80,"]))
# Values that the chart's schema refuses.
REFUSED = ({"replica": 2}, {"replicas": -1}, {"service": {"type": "Gateway"}}, {"options": {"x": [1]}}, {"model": ""})


def check_flags(words, environment=None):
    """The program takes the words of a container; its model, which is elsewhere, is models/quickstart."""
    assert words[0] == "serve" and not words[1].startswith("-"), words
    command = [NEREID, "serve", MODEL, *map(str, words[2:]), "--print-config"]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60,
                              env={**os.environ, **(environment or {}), "NEREID_CACHE_DIR": cache})
    assert done.returncode == 0, f"{command}: {done.stderr}"


def check_manifest(manifest):
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    if manifest["kind"] == "Deployment":
        container = manifest["spec"]["template"]["spec"]["containers"][0]
        check_flags(container["args"])
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in manifest["spec"]["template"]["spec"]["volumes"]}, mounted


def check_chart():
    count = 0
    with helm_python.Chart.load(str(DEPLOY / "helm" / "nereid")) as chart:
        for values, texts in VALUES:
            rendered = chart.render(values, name="my-model", namespace="models")
            for text in texts:
                assert any(text in one for one in rendered.values()), f"no {text!r} in {rendered}"
            assert "--strict-fields" not in "".join(rendered.values()), "an option that is false is left out"
            manifests = [manifest for text in rendered.values() for manifest in yaml.safe_load_all(text) if manifest]
            assert {manifest["kind"] for manifest in manifests} == {"Deployment", "Service"}
            for manifest in manifests:
                check_manifest(manifest)
                count += 1
        for values in REFUSED:
            try:
                chart.render(values, name="my-model", namespace="models")
            except helm_python.HelmError:
                continue
            raise AssertionError(f"the chart takes {values}")
    print(f"deploy: helm: {count} manifests, {len(REFUSED)} wrong values refused")


def check_kserve():
    runtime, service = yaml.safe_load_all((DEPLOY / "kserve" / "runtime.yaml").read_text("utf-8"))
    assert (runtime["kind"], service["kind"]) == ("ServingRuntime", "InferenceService")
    spec = runtime["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": spec["containers"], "volumes": spec["volumes"]}}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    container = spec["containers"][0]
    assert container["name"] == "kserve-container" and "/mnt/models" in container["args"]
    check_flags(container["args"])
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in {known["name"] for known in spec["supportedModelFormats"]}
    print("deploy: kserve: the container and its flags")


def check_leader_worker():
    """Flags and the variables of a LeaderWorkerSet: the server takes its size from them, the worker its leader."""
    group, service = yaml.safe_load_all((DEPLOY / "kubernetes" / "leader-worker.yaml").read_text("utf-8"))
    assert (group["apiVersion"], group["kind"], service["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "Service")
    kubernetes_validate.validate(service, KUBERNETES, strict=True)
    assert set(group["spec"]) == {"replicas", "startupPolicy", "leaderWorkerTemplate"}, group["spec"].keys()
    assert group["spec"]["startupPolicy"] == "LeaderCreated", "process 0 waits for the others"
    template = group["spec"]["leaderWorkerTemplate"]
    assert set(template) == {"size", "restartPolicy", "leaderTemplate", "workerTemplate"}, template.keys()
    assert template["restartPolicy"] == "None"
    for role in ("leader", "worker"):
        pod = {"apiVersion": "v1", "kind": "Pod", **template[role + "Template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        container = pod["spec"]["containers"][0]
        assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["spec"]["volumes"]}
    assert service["spec"]["selector"].items() <= template["leaderTemplate"]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= template["workerTemplate"]["metadata"]["labels"].items()
    with tempfile.TemporaryDirectory() as folder:
        token = os.path.join(folder, "token")
        pathlib.Path(token).write_text("0123456789abcdef0123456789abcdef", "utf-8")
        leader, worker = ([token if word == "/etc/nereid/token" else word for word in template[role + "Template"]["spec"]["containers"][0]["args"]]
                          for role in ("leader", "worker"))
        variables = {"LWS_GROUP_SIZE": str(template["size"]), "LWS_WORKER_INDEX": "0", "LWS_LEADER_ADDRESS": "127.0.0.1"}
        check_flags(leader, variables)
        assert int(leader[leader.index("--tp") + 1]) == template["size"]

        def run(words, **changed):
            return subprocess.run([NEREID, *words], capture_output=True, text=True, check=False, timeout=60,
                                  env={**os.environ, **variables, **changed, "NEREID_CACHE_DIR": folder})
        done = run([leader[0], MODEL, *leader[2:], "--join-address", "127.0.0.1:0", "--join-timeout-secs", "1"])
        assert "1 of 2 processes have not joined" in done.stdout + done.stderr, done.stdout + done.stderr
        done = run([leader[0], MODEL, *leader[2:]], LWS_WORKER_INDEX="1")
        assert "only process 0 of a LeaderWorkerSet serves" in done.stderr, done.stderr
        done = run([*worker, "--join-timeout-secs", "1"], LWS_WORKER_INDEX="1")
        assert done.returncode == 1 and "127.0.0.1:7600" in done.stderr + done.stdout, done.stderr
    print("deploy: leader-worker: pods, flags and variables")


def check_compose():
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    compose_spec.PyCompose.from_yaml(text)
    services = yaml.safe_load(text)["services"]
    nereid = services["nereid"]
    defaults = {name: value.split(":-")[1].rstrip("}") for name, value in nereid["environment"].items() if name.startswith("NEREID_")}
    check_flags(nereid["command"], defaults)
    for volume in services["prometheus"]["volumes"]:
        assert (DEPLOY / volume.split(":")[0]).is_file(), volume
    print("deploy: compose: the file, the server's flags and variables")


check_chart()
check_kserve()
check_leader_worker()
check_compose()
