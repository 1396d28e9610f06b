#!/usr/bin/env python3
"""Holds the Helm chart in `deploy/helm` against Helm, Kubernetes' schemas and the binary.

Helm lints and renders the chart with every values file. `kubernetes-validate` checks what was rendered
against the schemas of the oldest and the newest Kubernetes it knows of those we support. Values that
contradict each other have to be refused with a message. Then a server is started for each values file with
the arguments and variables that the chart gives it, on a real store of that kind. Helm is built from its Go
module once, into `target/tools`; nothing talks to a Kubernetes.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator

import servers
from running import BINARY, ROOT, SERVERS, Broken, free_port, listens, wait_for

CHART = ROOT / "deploy" / "helm" / "ratekeeper"
TOOLS = ROOT / "target" / "tools"
HELM = "v3.21.4"
VALIDATE = "kubernetes-validate==1.37.0"
KUBERNETES = ("1.27", "1.37")
PASSWORD = "a password / with % and @ in it"  # noqa: S105
# What certificates may be used for; the machine's own settings play no part.
CERTIFICATES = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = ratekeeper tests
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
"""
# What has to be refused, and a part of what is said.
REFUSED = [
    (("replicas=2",), "replicas: got more than 1 with store.kind embedded"),
    (("store.hosts={redis:6379}",), "store.kind: got embedded with store.hosts"),
    (("store.kind=redis",), "store.hosts: got none for store.kind redis"),
    (("store.kind=memcached",), "store.kind"),
    (("store.kind=redis", "store.hosts={redis:6379}", "store.urlSecret.name=s"), "store.urlSecret: got a URL beside"),
    (("store.kind=redis", "store.hosts={user:password@redis}"), "/store/hosts/0"),
    (("store.kind=sentinel", "store.hosts={redis:26379}"), "store.service: got none"),
    (("store.kind=cluster", "store.hosts={redis:6379}", "store.database=1"), "store.database: got a number"),
    (("admin.enabled=true",), "admin.tokensSecret.name: got none"),
    (("policies=null",), "policies: got none"),
    (("stroe.kind=redis",), "stroe"),
]


def run(*command: str, **environment: str) -> str:
    """What a command prints; an error shows all of it."""
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if result.returncode != 0:
        raise Broken(f"{' '.join(command)}:\n{result.stdout}{result.stderr}")
    return result.stdout


def helm() -> str:
    """Helm, built once."""
    path = TOOLS / f"helm-{HELM}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
            options = ["-trimpath", "-ldflags=-s -w", f"helm.sh/helm/v3/cmd/helm@{HELM}"]
            run(servers.go(), "install", *options, GOBIN=folder, CGO_ENABLED="0", GOFLAGS="-buildvcs=false")
            os.replace(pathlib.Path(folder, "helm"), path)
    return str(path)


def python() -> str:
    """A Python with the validator and a reader of YAML."""
    folder = TOOLS / VALIDATE.replace("==", "-")
    path = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        run(str(path), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", VALIDATE)
        (folder / "complete").touch()
    return str(path)


def render(values: str | None, *settings: str) -> str:
    """The manifests for a values file."""
    files = [] if values is None else ["--values", str(CHART / values)]
    sets = [word for setting in settings for word in ("--set", setting)]
    return run(helm(), "template", "limits", str(CHART), "--kube-version", KUBERNETES[-1], *files, *sets)


def objects(manifests: str) -> dict[str, dict]:
    """The objects of manifests, by kind and name."""
    read = "import json, sys, yaml; json.dump([o for o in yaml.safe_load_all(sys.stdin) if o], sys.stdout)"
    result = subprocess.run([python(), "-c", read], input=manifests, capture_output=True, text=True, check=True)
    return {f"{found['kind']}/{found['metadata']['name']}": found for found in json.loads(result.stdout)}


def check_values(values: str | None) -> dict[str, dict]:
    """Lints, renders and validates; the objects."""
    files = [] if values is None else ["--values", str(CHART / values)]
    run(helm(), "lint", "--strict", "--quiet", "--kube-version", KUBERNETES[-1], str(CHART), *files)
    manifests = render(values)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "manifests.yaml")
        file.write_text(manifests)
        for version in KUBERNETES:
            run(python(), "-m", "kubernetes_validate", "--strict", "--quiet", "-k", version, str(file))
    found = objects(manifests)
    check_objects(values, found)
    return found


def check_objects(values: str | None, found: dict[str, dict]) -> None:
    """What no schema can say: that objects fit each other and the binary."""
    deployment = found["Deployment/limits-ratekeeper"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [deployment["selector"]["matchLabels"]]
    selectors += [found[name]["spec"]["selector"] for name in found if name.startswith("Service/")]
    selectors += [found[name]["spec"]["selector"]["matchLabels"] for name in found if name.startswith("PodDis")]
    selectors += [found[name]["spec"]["podSelector"]["matchLabels"] for name in found if name.startswith("Network")]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    targets = [port["targetPort"] for name in found if name.startswith("Service/") for port in found[name]["spec"]["ports"]]
    targets += [container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    help_text = run(str(BINARY), "serve", "--help")
    flags = [argument for argument in container["args"] if argument.startswith("--")]
    drain = int(container["args"][container["args"].index("--drain-seconds") + 1])
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    for what, holds in {
        "selectors are those of the pod": all(selector.items() <= labels.items() for selector in selectors),
        "ports of services and probes": all(target in ports for target in targets),
        "the address listens on the port": variables["RATEKEEPER_HTTP"] == f"0.0.0.0:{ports['http']}",
        "variables are settings": all(re.search(rf"\[env:\s+{name}[=\]]", help_text) for name in variables),
        "flags are settings": all(re.search(rf"{flag}\b", help_text) for flag in flags),
        "volumes are mounted": {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]},
        "claims are there": all(f"PersistentVolumeClaim/{claim}" in found for claim in claims),
        "time to drain and to finish": pod["terminationGracePeriodSeconds"] > drain + 10,
        "no volume of one for several": deployment["replicas"] == 1 or not claims,
        "operators' calls are closed unless there are tokens": variables["RATEKEEPER_NO_ADMIN"]
        == ("false" if "RATEKEEPER_TOKENS" in variables else "true"),
        "shares of a limit": variables.get("RATEKEEPER_INSTANCES", "1") == str(deployment["replicas"]),
        "little may be done": container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"],
    }.items():
        if not holds:
            raise Broken(f"{values or 'values.yaml'}: {what}: this does not hold")


def check_refusals() -> None:
    """Values that contradict each other are refused with a message."""
    for settings, said in REFUSED:
        try:
            render(None, *settings)
        except Broken as refused:
            if said not in str(refused):
                raise Broken(f"{settings}: expected {said!r} in what is said:\n{refused}") from None
        else:
            raise Broken(f"{settings}: should be refused: {said}")


@dataclasses.dataclass
class Stage:
    """Processes of a test and where their files are."""

    folder: pathlib.Path
    processes: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)

    def start(self, name: str, command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a process whose output is in the folder."""
        with open(self.folder / f"{name}.log", "ab") as log:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder)
        self.processes.append(started)
        return started

    def redis(self, name: str, *options: str) -> int:
        """The port of a Redis."""
        port = free_port()
        base = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        started = self.start(name, [str(SERVERS / "redis-7"), *base, *options])
        wait_for(f"{name}, see {self.folder}/{name}.log", lambda: listens(port), started)
        return port

    def ask(self, port: int, *command: str) -> str:
        """What a Redis answers to a command."""
        return run(str(SERVERS / "redis-cli"), "-p", str(port), *command)

    def end(self) -> None:
        """Ends all processes."""
        for process in self.processes:
            process.kill()
            process.wait()


def embedded(_: Stage) -> Iterator[str]:
    """Nothing but the volume."""
    yield from ()


def one_redis(stage: Stage) -> Iterator[str]:
    """A Redis with a user and a password."""
    port = stage.redis("redis")
    stage.ask(port, "acl", "setuser", "ratekeeper", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    stage.ask(port, "acl", "setuser", "default", "off")
    yield f"store.hosts={{127.0.0.1:{port}}}"


def sentinel(stage: Stage) -> Iterator[str]:
    """A primary and its sentinel with TLS of an authority of their own; the primary has a user and a password."""
    tls, (primary, port) = certify(stage), (free_port(), free_port())
    base = ["--port", "0", "--tls-port", str(primary), "--bind", "127.0.0.1", "--save", "", "--dir", str(stage.folder)]
    started = stage.start("redis", [str(SERVERS / "redis-7"), *base, *(word for name, value in tls.items() for word in (f"--{name}", value))])
    wait_for("the primary", lambda: listens(primary), started)
    secure = ("--tls", "--cacert", tls["tls-ca-cert-file"])
    stage.ask(primary, *secure, "acl", "setuser", "ratekeeper", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    stage.ask(primary, *secure, "acl", "setuser", "default", "off")
    lines = ["port 0", f"tls-port {port}", "bind 127.0.0.1", *(f"{name} {value}" for name, value in tls.items())]
    lines += [f"sentinel monitor mymaster 127.0.0.1 {primary} 1", "sentinel auth-user mymaster ratekeeper"]
    lines += [f'sentinel auth-pass mymaster "{PASSWORD}"']
    (stage.folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
    started = stage.start("sentinel", [str(SERVERS / "redis-7"), str(stage.folder / "sentinel.conf"), "--sentinel"])
    wait_for("the sentinel", lambda: listens(port), started)
    yield f"store.hosts={{127.0.0.1:{port}}}"


def certify(stage: Stage) -> dict[str, str]:
    """An authority where the chart mounts it, and a server's certificate: how Redis is told of them."""
    (stage.folder / "store-ca").mkdir()
    (stage.folder / "openssl.cnf").write_text(CERTIFICATES)
    authority, certificate, key = (str(stage.folder / name) for name in ("store-ca/ca.crt", "server.pem", "server.key"))
    kind = ["-x509", "-noenc", "-days", "30", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    make = [str(SERVERS / "openssl"), "req", "-config", str(stage.folder / "openssl.cnf"), *kind]
    run(*make, "-extensions", "authority", "-keyout", f"{authority}.key", "-out", authority)
    signed = ["-CA", authority, "-CAkey", f"{authority}.key"]
    run(*make, *signed, "-extensions", "server", "-keyout", key, "-out", certificate)
    files = {"tls-ca-cert-file": authority, "tls-cert-file": certificate, "tls-key-file": key}
    return files | {"tls-auth-clients": "no", "tls-replication": "yes"}


def cluster(stage: Stage) -> Iterator[str]:
    """A cluster of one node, with a user; operators' tokens, and a certificate."""
    port = stage.redis("node", "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
    stage.ask(port, "cluster", "addslotsrange", "0", "16383")
    wait_for("the cluster", lambda: "cluster_state:ok" in stage.ask(port, "cluster", "info"))
    stage.ask(port, "acl", "setuser", "ratekeeper", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    stage.ask(port, "acl", "setuser", "default", "off")
    (stage.folder / "tls").mkdir()
    files = ["-keyout", str(stage.folder / "tls/tls.key"), "-out", str(stage.folder / "tls/tls.crt")]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"]
    run(str(SERVERS / "openssl"), "req", "-x509", "-nodes", "-days", "30", *kind, *files)
    yield f"store.hosts={{127.0.0.1:{port}}}"


STORES: dict[str, Callable[[Stage], Iterator[str]]] = {
    "values-embedded.yaml": embedded,
    "values-redis.yaml": one_redis,
    "values-sentinel.yaml": sentinel,
    "values-cluster.yaml": cluster,
}


def ask(port: int, path: str, body: object = None, token: str = "", is_secure: bool = False) -> tuple[int, str]:
    """The status of an answer, and its body."""
    # The certificate of the test is trusted by nothing.
    make = http.client.HTTPConnection
    options: dict[str, object] = {"timeout": 30}
    if is_secure:
        import ssl

        make, options["context"] = http.client.HTTPSConnection, ssl._create_unverified_context()
    with contextlib.closing(make("127.0.0.1", port, **options)) as connection:
        fields = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), fields)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def serve(stage: Stage, values: str) -> None:
    """Starts a server as the chart does, on a store of the kind, and asks it."""
    (stage.folder / "policies").mkdir()
    (stage.folder / "data").mkdir()
    for secret, content in (("store-password/password", PASSWORD), ("tokens/tokens", "")):
        path = stage.folder / secret
        path.parent.mkdir()
        path.write_text(content)
    made = json.loads(run(str(BINARY), "token", "new", "--role", "operate", "--format", "json"))
    (stage.folder / "tokens/tokens").write_text(made["line"] + "\n")
    found = objects(render(values, *STORES[values](stage)))
    for name, policy in found["ConfigMap/limits-ratekeeper-policies"]["data"].items():
        (stage.folder / "policies" / name).write_text(policy)
    [container] = found["Deployment/limits-ratekeeper"]["spec"]["template"]["spec"]["containers"]
    ports = {port["containerPort"]: free_port() for port in container["ports"]}

    def here(text: str) -> str:
        """A path or an address as it is here."""
        for port, free in ports.items():
            text = text.replace(f"0.0.0.0:{port}", f"0.0.0.0:{free}")
        return text.replace("/etc/ratekeeper", str(stage.folder)).replace("/var/lib/ratekeeper", str(stage.folder))

    variables = {variable["name"]: here(variable["value"]) for variable in container["env"]}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RATEKEEPER_")}
    environment |= variables | {"RATEKEEPER_STORE_DEADLINE": "20000", "RATEKEEPER_DRAIN_SECONDS": "0"}
    arguments = [here(argument) for argument in container["args"]]
    arguments[arguments.index("--drain-seconds") + 1] = "0"
    port, is_secure = ports[8080], "RATEKEEPER_TLS_CERT" in variables
    remaining = []
    for _ in range(2):
        started = stage.start("server", [str(BINARY), *arguments], environment)
        log = stage.folder / "server.log"
        wait_for(f"{values}, see {log}:\n{log.read_text()}", lambda: listens(port), started)
        for path in ("/healthz", "/readyz", "/readyz/store", "/metrics"):
            status, body = ask(port, path, is_secure=is_secure)
            if status != 200:
                raise Broken(f"{values}: {path} is {status}: {body}")
        charge = {"charges": [{"key": "k", "quota": "9/d fixed_window"}]}
        status, body = ask(port, "/v1/limit", charge, is_secure=is_secure)
        remaining.append(json.loads(body)["limits"][0]["remaining"])
        check_operators(values, ports, made["token"], is_secure)
        started.terminate()
        if started.wait(30) != 0:
            raise Broken(f"{values}: it ends with {started.returncode}:\n{log.read_text()}")
    if remaining != [8, 7]:
        raise Broken(f"{values}: a restart forgets what was counted: {remaining}")


def check_operators(values: str, ports: dict[int, int], token: str, is_secure: bool) -> None:
    """Operators' calls are on their own port, for a token; without that, nowhere."""
    path = "/v1/switches"
    asked = {
        "on the port of all": ask(ports[8080], path, token=token, is_secure=is_secure)[0] in (403, 404),
    }
    if len(ports) == 2:
        asked["without a token"] = ask(ports[8081], path, is_secure=is_secure)[0] in (401, 403)
        asked["with a token"] = ask(ports[8081], path, token=token, is_secure=is_secure)[0] == 200
    for where, holds in asked.items():
        if not holds:
            raise Broken(f"{values}: operators' calls {where}: not as they should be")


def main() -> int:
    """Fails with the first thing that is not as it should be."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    try:
        for values in (None, *STORES):
            check_values(values)
        check_refusals()
        policy = (ROOT / "deploy" / "policy" / "policy.toml").read_text()
        if objects(render(None))["ConfigMap/limits-ratekeeper-policies"]["data"]["policy.toml"] != policy:
            raise Broken("the policy of the chart is not that of deploy/policy")
        print(f"helm and Kubernetes {' to '.join(KUBERNETES)} take {1 + len(STORES)} values files", flush=True)
        for values in STORES:
            with tempfile.TemporaryDirectory() as folder:
                stage = Stage(pathlib.Path(folder))
                try:
                    serve(stage, values)
                finally:
                    stage.end()
    except Broken as broken:
        print(f"error: {broken}", file=sys.stderr)
        return 1
    except servers.Missing as missing:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    print(f"a server as the chart starts it runs on each of {len(STORES)} stores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
