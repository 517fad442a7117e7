"""Tests of the manifests that the chart renders. packages/helm/check runs them with helm and waymaker-manifests on PATH."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHART = HERE / "waymaker"
NAMESPACE = "locks"
# Options that other values of the chart decide, or that it does not offer. The schema refuses them in `config`.
DECIDED = {
    *("listen", "unix", "grpc_listen", "http_listen", "locktopus_listen", "dynamodb_listen", "insecure", "data_dir", "drain", "tokens", "access", "dynamodb_keys"),
    *("tls_cert", "tls_key", "tls_client_ca", "tls_client_crl"),
    *("quorum.password", "quorum.ca", "quorum.cert", "quorum.key"),
}
SERVER = os.environ.get("WAYMAKER_SERVER")


def read(path):
    return (ROOT / path).read_text()


def find(pattern, path):
    """Returns all matches of a pattern in a file, and fails without any: the file then has another form."""
    found = re.findall(pattern, read(path), re.MULTILINE)
    assert found, f"{path} has no {pattern}"
    return found


def documented_options():
    """Returns the schema of each option, by its key in the configuration file."""
    integer, string = {"type": "integer"}, {"type": "string"}
    forms = {
        "N": integer,
        "BYTES": integer,
        "LIST": {"type": "array", "items": string},
        "bool": {"type": "boolean"},
    }
    rows = find(r"^\| `--([^`]+)` \| `WAYMAKER_\w+` \| `([a-z_.]+)` \| [^|]+ \| (.*) \|$", "docs/reference/configuration.md")
    options = {}
    for flag, key, meaning in rows:
        form = "bool" if flag.endswith(r"[=true\|false]") else flag.split(" ")[1]
        schema = forms.get(form, string)
        if form == "N" and "`none`" in meaning:
            schema = {"anyOf": [integer, {"const": "none"}]}
        options[key] = schema
    return options


def flatten(table, prefix=""):
    """Returns the keys of a configuration as the reference writes them, such as `limits.claims`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def helm(*arguments, chart=CHART):
    command = ["helm", "template", "test", f"--namespace={NAMESPACE}", str(chart), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


class Rendered:
    """The manifests of one set of values."""

    def __init__(self, *arguments):
        result = helm(*arguments)
        assert result.returncode == 0, result.stderr
        result = subprocess.run(["waymaker-manifests"], input=result.stdout, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        self.objects = [json.loads(line) for line in result.stdout.splitlines()]
        (self.stateful_set,) = self.of_kind("StatefulSet")
        (self.config_map,) = self.of_kind("ConfigMap")
        self.pod = self.stateful_set["spec"]["template"]
        (self.container,) = self.pod["spec"]["containers"]
        self.toml = self.config_map["data"]["waymaker.toml"]
        self.config = tomllib.loads(self.toml)
        claims = self.stateful_set["spec"].get("volumeClaimTemplates", [])
        self.claims = {claim["metadata"]["name"]: claim["spec"] for claim in claims}
        self.volumes = {volume["name"]: volume for volume in self.pod["spec"]["volumes"]}
        self.mounts = {mount["name"]: mount for mount in self.container["volumeMounts"]}
        self.ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        self.variables = {variable["name"]: variable.get("value") for variable in self.container["env"] or []}

    def of_kind(self, kind):
        return [found for found in self.objects if found["kind"] == kind]

    def mount_of(self, path):
        """Returns the mount with a path of the container, or None."""
        found = [m for m in self.mounts.values() if pathlib.PurePath(path).is_relative_to(m["mountPath"])]
        return max(found, key=lambda mount: len(mount["mountPath"]), default=None)

    def environment(self):
        """Returns the variables of the server: the ones of the image, replaced by the ones of the container."""
        image = dict(pair.split("=", 1) for line in find(r"^ENV (.+)$", "Dockerfile") for pair in line.split())
        return image | self.variables

    def probes(self):
        return {kind: self.container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")}


def make_files(root, rendered):
    """Makes the directories and the Secrets of the Pod below a directory, as the README says."""
    ctl = pathlib.Path(SERVER).with_name("waymaker-ctl")

    def run(*arguments):
        subprocess.run([ctl, *arguments], cwd=root, check=True, capture_output=True)

    for mount in rendered.mounts.values():
        (root / mount["mountPath"][1:]).mkdir(parents=True)
    run("tls", "init", "certificates", "--server-name", f"waymaker.{NAMESPACE}.svc")
    run("tokens", "create", "billing", "--file", "tokens.toml")
    (root / "access.toml").write_text('[[rule]]\nidentity = "billing"\nallow = ["all"]\n')
    certificates = {"server.pem": "tls.crt", "server.key": "tls.key", "ca.pem": "ca.crt", "clients.crl": "clients.crl"}
    for mount in ("tls", "quorum", "auth"):
        directory = root / "etc/waymaker" / mount
        if directory.exists() and mount == "auth":
            shutil.copy(root / "tokens.toml", directory)
            shutil.copy(root / "access.toml", directory)
        elif directory.exists():
            for file, key in certificates.items():
                shutil.copy(root / "certificates" / file, directory / key)


SETS = {path.stem: Rendered(f"--values={path}") for path in sorted((HERE / "values").glob("*.yaml"))}


def each(test):
    """Runs a test for every set of values, and names the sets for which it fails."""

    def run(self):
        for name, rendered in SETS.items():
            with self.subTest(values=name):
                test(self, rendered)

    return run


class EachSet(unittest.TestCase):
    """Each test is about one promise of the chart, for every set of values."""

    @each
    def test_the_server_knows_every_key_of_its_configuration(self, rendered):
        self.assertLessEqual(set(flatten(rendered.config)), documented_options().keys())

    @unittest.skipUnless(SERVER, "there is no waymaker-server")
    @each
    def test_the_server_accepts_the_configuration(self, rendered):
        with tempfile.TemporaryDirectory() as root:

            def below(path):
                return root + path if path.startswith("/") else path

            make_files(pathlib.Path(root), rendered)
            file = pathlib.Path(root) / "waymaker.toml"
            file.write_text(re.sub(r'(?<=")(?=/)', root, rendered.toml))
            arguments = [argument for argument in rendered.container["args"] if not argument.startswith("--config=")]
            result = subprocess.run(
                [SERVER, f"--config={file}", *arguments, "--check-config"],
                env={name: below(value or "a secret") for name, value in rendered.environment().items()},
                capture_output=True,
                text=True,
            )
        self.assertEqual((result.returncode, result.stdout), (0, "configuration is valid\n"), result.stderr)

    @each
    def test_all_objects_have_the_names_and_labels_of_the_release(self, rendered):
        for found in rendered.objects:
            self.assertEqual(found["metadata"]["labels"]["app.kubernetes.io/instance"], "test", found["kind"])
            self.assertTrue(found["metadata"]["name"].startswith(rendered.stateful_set["metadata"]["name"]))

    @each
    def test_listeners_container_services_and_image_have_the_same_ports(self, rendered):
        exposed = {int(port) for line in find(r"^EXPOSE (.+)$", "Dockerfile") for port in line.split()}
        listeners = {"binary": "listen", "grpc": "grpc_listen", "http": "http_listen"}
        listened = {name: int(rendered.config[key].rsplit(":", 1)[1]) for name, key in listeners.items()}
        self.assertEqual(rendered.ports, listened)
        self.assertEqual(set(rendered.ports.values()), exposed)
        services = rendered.of_kind("Service")
        self.assertEqual(len(services), 2)
        for service in services:
            served = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
            self.assertEqual(served, rendered.ports)

    @each
    def test_services_lead_to_the_pod_also_while_it_is_not_ready(self, rendered):
        labels = rendered.pod["metadata"]["labels"].items()
        selectors = [service["spec"]["selector"] for service in rendered.of_kind("Service")]
        selectors.append(rendered.stateful_set["spec"]["selector"]["matchLabels"])
        selectors += [budget["spec"]["selector"]["matchLabels"] for budget in rendered.of_kind("PodDisruptionBudget")]
        for selector in selectors:
            self.assertEqual(selector.keys(), {"app.kubernetes.io/name", "app.kubernetes.io/instance"})
            self.assertLessEqual(selector.items(), labels)
        for service in rendered.of_kind("Service"):
            self.assertIs(service["spec"]["publishNotReadyAddresses"], True)
        headless = [s["metadata"]["name"] for s in rendered.of_kind("Service") if s["spec"].get("clusterIP") == "None"]
        self.assertEqual(headless, [rendered.stateful_set["spec"]["serviceName"]])

    @each
    def test_the_http_port_accepts_the_names_of_the_service(self, rendered):
        (name,) = [s["metadata"]["name"] for s in rendered.of_kind("Service") if "clusterIP" not in s["spec"]]
        names = {name, f"{name}.{NAMESPACE}", f"{name}.{NAMESPACE}.svc", f"{name}.{NAMESPACE}.svc.cluster.local"}
        self.assertLessEqual(names, set(rendered.config["http_hosts"]))

    @each
    def test_probes_use_paths_of_the_http_port_and_its_scheme(self, rendered):
        paths = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        for kind, probe in rendered.probes().items():
            check = probe.get("httpGet") or probe["tcpSocket"]
            port = rendered.ports.get(check["port"], check["port"])
            self.assertEqual(port, rendered.ports["http"])
            # Kubernetes has no certificate to show.
            self.assertEqual("tcpSocket" in probe, "tls_client_ca" in rendered.config)
            if "httpGet" in probe:
                self.assertEqual(check["path"], paths[kind])
                self.assertEqual(check["scheme"], "HTTPS" if "tls_cert" in rendered.config else "HTTP")

    @each
    def test_a_start_gets_the_time_that_systemd_gives_it(self, rendered):
        (minutes,) = find(r"^TimeoutStartSec=(\d+)min$", "packages/systemd/waymaker.service")
        probe = rendered.probes()["startup"]
        self.assertGreaterEqual(probe["periodSeconds"] * probe["failureThreshold"], 60 * int(minutes))

    @each
    def test_a_stop_gets_the_time_that_systemd_gives_it(self, rendered):
        (seconds,) = find(r"^TimeoutStopSec=(\d+)$", "packages/systemd/waymaker.service")
        grace = rendered.pod["spec"]["terminationGracePeriodSeconds"]
        self.assertGreaterEqual(grace, int(seconds))
        self.assertGreater(grace, int(rendered.config["drain"].removesuffix("s")))

    @each
    def test_the_pod_has_few_rights(self, rendered):
        # The image has only the name of its user, which runAsNonRoot does not accept.
        (user,) = find(r"^id=(\d+)$", "packages/image")
        spec = rendered.pod["spec"]
        self.assertEqual(
            spec["securityContext"],
            {
                "runAsNonRoot": True,
                "runAsUser": int(user),
                "runAsGroup": int(user),
                "fsGroup": int(user),
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        )
        self.assertEqual(
            rendered.container["securityContext"],
            {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        )
        self.assertIs(spec["automountServiceAccountToken"], False)
        for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
            self.assertNotIn(forbidden, spec)
        accounts = rendered.of_kind("ServiceAccount")
        for account in accounts:
            self.assertIs(account["automountServiceAccountToken"], False)
        self.assertEqual(spec["serviceAccountName"], accounts[0]["metadata"]["name"] if accounts else "default")

    @each
    def test_every_mount_has_a_volume_and_every_volume_a_mount(self, rendered):
        self.assertEqual(sorted(rendered.mounts), sorted([*rendered.volumes, *rendered.claims]))
        self.assertEqual(len(rendered.mounts), len(rendered.container["volumeMounts"]))

    @each
    def test_every_path_of_the_configuration_is_in_a_mount(self, rendered):
        paths = {"--config": rendered.container["args"][0].removeprefix("--config=")}
        for table in (rendered.config, rendered.config.get("quorum", {})):
            paths |= {key: value for key, value in table.items() if isinstance(value, str) and value.startswith("/")}
        for key, path in paths.items():
            mount = rendered.mount_of(path)
            self.assertIsNotNone(mount, f"{key}: {path} is not in a mount")
            # A subPath would not be updated when a Secret changes.
            self.assertNotIn("subPath", mount)
            self.assertEqual(mount.get("readOnly", False), key not in ("data_dir", "unix"), key)
        file = pathlib.PurePath(paths["--config"])
        mount = rendered.mount_of(file)
        self.assertEqual(str(file.parent), mount["mountPath"])
        self.assertEqual(rendered.volumes[mount["name"]]["configMap"]["name"], rendered.config_map["metadata"]["name"])
        self.assertIn(file.name, rendered.config_map["data"])

    @each
    def test_the_data_directory_is_in_the_persistent_volume(self, rendered):
        directory = rendered.config["data_dir"]
        # A variable takes precedence over the file, also if only the image sets it.
        self.assertEqual(rendered.environment()["WAYMAKER_DATA_DIR"], directory)
        self.assertFalse([argument for argument in rendered.container["args"] if argument.startswith("--data-dir")])
        if directory == "none":
            self.assertNotIn("data", rendered.mounts)
            return
        mount = rendered.mount_of(directory)
        # The root of a volume may have lost+found.
        self.assertNotEqual(mount["mountPath"], directory)
        volume = rendered.volumes.get(mount["name"])
        self.assertTrue("persistentVolumeClaim" in volume if volume else mount["name"] in rendered.claims)

    @each
    def test_other_variables_of_the_image_agree_with_the_configuration(self, rendered):
        for name, value in rendered.environment().items():
            key = name.removeprefix("WAYMAKER_").lower()
            if key in documented_options():
                self.assertEqual(rendered.config[key], value, name)

    @each
    def test_only_the_group_of_the_server_reads_secrets(self, rendered):
        for volume in rendered.volumes.values():
            if "secret" in volume:
                self.assertEqual(volume["secret"]["defaultMode"], 0o440)

    @each
    def test_one_server_runs(self, rendered):
        self.assertEqual(rendered.stateful_set["spec"]["replicas"], 1)

    @each
    def test_workers_and_memory_are_limited(self, rendered):
        # Each worker needs memory, and the server would start one for each core of the node.
        self.assertIn("workers", rendered.config)
        self.assertIn("memory", rendered.container["resources"]["limits"])
        # A limit of the processor delays renewals.
        self.assertNotIn("cpu", rendered.container["resources"]["limits"])

    @each
    def test_prometheus_scrapes_the_server_once_as_the_job_of_the_alerts(self, rendered):
        (job,) = find(r"expr: up\{job=\"(\w+)\"\} == 0", "monitoring/waymaker.rules.yml")
        for monitor in rendered.of_kind("ServiceMonitor"):
            spec = monitor["spec"]
            selector = spec["selector"]["matchLabels"].items()
            (service,) = [s for s in rendered.of_kind("Service") if selector <= s["metadata"]["labels"].items()]
            self.assertEqual(service["metadata"]["labels"][spec["jobLabel"]], job)
            (endpoint,) = spec["endpoints"]
            self.assertIn(endpoint["port"], [port["name"] for port in service["spec"]["ports"]])
            self.assertEqual((endpoint["port"], endpoint["path"]), ("http", "/metrics"))
            self.assertEqual(endpoint.get("scheme") == "https", "tls_cert" in rendered.config)


class Sets(unittest.TestCase):
    """What the values change."""

    def test_secrets_are_mounted_where_the_configuration_names_their_keys(self):
        expected = {
            "tls": {
                "tls_cert": ("locks-tls", "tls.crt"),
                "tls_key": ("locks-tls", "tls.key"),
                "tokens": ("locks-auth", "tokens.toml"),
                "access": ("locks-auth", "access.toml"),
            },
            "mutual-tls": {"tls_client_ca": ("locks-tls", "ca.crt"), "tls_client_crl": ("locks-tls", "clients.crl")},
            "quorum": {
                "quorum.ca": ("locks-etcd-tls", "ca.crt"),
                "quorum.cert": ("locks-etcd-tls", "tls.crt"),
                "quorum.key": ("locks-etcd-tls", "tls.key"),
            },
        }
        for name, files in expected.items():
            rendered = SETS[name]
            for key, (secret, file) in files.items():
                table = rendered.config
                *tables, last = key.split(".")
                for part in tables:
                    table = table[part]
                path = pathlib.PurePath(table[last])
                mount = rendered.mount_of(path)
                self.assertEqual((str(path.parent), path.name), (mount["mountPath"], file), key)
                self.assertEqual(rendered.volumes[mount["name"]]["secret"]["secretName"], secret, key)

    def test_clients_are_encrypted_and_authenticated_unless_insecure(self):
        for name, rendered in SETS.items():
            credentials = {"tokens", "access", "tls_client_ca"} & rendered.config.keys()
            is_secure = "tls_cert" in rendered.config and bool(credentials)
            self.assertEqual(is_secure, not rendered.config["insecure"], name)

    def test_the_password_of_etcd_comes_from_a_secret(self):
        rendered = SETS["quorum"]
        (password,) = [v for v in rendered.container["env"] if v["name"] == "WAYMAKER_QUORUM_PASSWORD"]
        self.assertEqual(password["valueFrom"], {"secretKeyRef": {"name": "locks-etcd", "key": "password"}})
        self.assertNotIn("password", rendered.config["quorum"])
        self.assertEqual(rendered.config["quorum"]["prefix"], "locks/")

    def test_types_of_options_stay(self):
        config = SETS["all"].config
        self.assertEqual(config["workers"], 4)
        self.assertIs(type(config["limits"]["lists_memory"]), int)
        self.assertEqual(config["limits"]["lists_memory"], 1 << 30)
        self.assertIs(config["pin"], True)
        self.assertIs(config["locket"]["durable"], False)
        self.assertEqual(config["http_origins"], ["https://dashboard.example"])
        self.assertEqual(config["quorum"]["prefix"], 'locks/"<ü>\\')
        self.assertEqual(config["connections_per_address"], "none")
        self.assertIn("locks.example", config["http_hosts"])
        self.assertEqual(config["listen"], "[::]:7420")
        self.assertEqual(config["drain"], "30s")

    def test_other_objects_are_used_if_named(self):
        rendered = SETS["all"]
        spec = rendered.pod["spec"]
        self.assertEqual(rendered.stateful_set["metadata"]["name"], "locks")
        self.assertEqual(rendered.volumes["data"]["persistentVolumeClaim"]["claimName"], "locks-data")
        self.assertEqual(rendered.claims, {})
        self.assertEqual(rendered.container["image"], "registry.example/waymaker:1.2.3")
        self.assertEqual(spec["imagePullSecrets"], [{"name": "registry"}])
        self.assertEqual(spec["nodeSelector"], {"disk": "ssd"})
        self.assertEqual(spec["tolerations"], [{"key": "locks", "operator": "Exists"}])
        self.assertIn("nodeAffinity", spec["affinity"])
        self.assertEqual(spec["priorityClassName"], "high")
        self.assertEqual(rendered.container["args"][1:], ["--busy-poll=50us"])
        self.assertEqual(rendered.variables["NO_COLOR"], "1")
        self.assertEqual(rendered.pod["metadata"]["annotations"]["example.com/team"], "locks")
        self.assertEqual(rendered.pod["metadata"]["labels"]["team"], "locks")
        (service,) = [s for s in rendered.of_kind("Service") if s["spec"].get("type") == "LoadBalancer"]
        # Otherwise all clients share the limits of one address.
        self.assertEqual(service["spec"]["externalTrafficPolicy"], "Local")

    def test_optional_objects_are_rendered_only_if_enabled(self):
        for name, rendered in SETS.items():
            self.assertEqual(len(rendered.of_kind("ServiceMonitor")), name in ("tls", "memory"), name)
            self.assertEqual(len(rendered.of_kind("PodDisruptionBudget")), name == "all", name)
            self.assertEqual(len(rendered.of_kind("ServiceAccount")), name != "all", name)

    def test_prometheus_gets_its_token_and_the_name_in_the_certificate(self):
        (monitor,) = SETS["tls"].of_kind("ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(endpoint["authorization"], {"credentials": {"name": "metrics-token", "key": "token"}})
        self.assertEqual(endpoint["tlsConfig"]["serverName"], "test-waymaker.locks.svc")
        self.assertEqual(endpoint["tlsConfig"]["ca"], {"secret": {"name": "locks-tls", "key": "ca.crt"}})

    def test_a_changed_configuration_and_nothing_else_replaces_the_pod(self):
        def checksum(*arguments):
            rendered = Rendered("--set=insecure=true", *arguments)
            return rendered.pod["metadata"]["annotations"]["checksum/config"]

        self.assertEqual(checksum(), checksum("--set=service.type=NodePort"))
        self.assertNotEqual(checksum(), checksum("--set=config.workers=3"))
        self.assertNotEqual(checksum(), checksum("--set=drainSeconds=6"))


class Refusals(unittest.TestCase):
    """Values that would start no server, or several servers, are refused with a message."""

    def refused(self, message, *values):
        result = helm(*(f"--set={value}" for value in values))
        self.assertNotEqual(result.returncode, 0, values)
        self.assertIn(message, result.stderr)

    def test_more_than_one_replica_is_refused(self):
        self.refused("replicaCount must be 1, or 0 to stop the server: Waymaker does not replicate", "insecure=true", "replicaCount=2")
        Rendered("--set=insecure=true", "--set=replicaCount=0")

    def test_an_open_server_needs_consent(self):
        self.refused("set tls.existingSecret, and auth.existingSecret or tls.clientCaKey; or accept the risk with insecure=true")
        self.refused("clients are not authenticated; set auth.existingSecret or tls.clientCaKey", "tls.existingSecret=a")

    def test_incomplete_values_are_refused(self):
        self.refused("tls.clientCaKey needs tls.existingSecret", "insecure=true", "tls.clientCaKey=a")
        self.refused("tls.clientCrlKey needs tls.clientCaKey", "insecure=true", "tls.existingSecret=a", "tls.clientCrlKey=a")
        self.refused(
            "auth.existingSecret needs auth.tokensKey or auth.accessKey",
            *("insecure=true", "auth.existingSecret=a", "auth.tokensKey=", "auth.accessKey="),
        )
        self.refused("quorum.clientCertificate needs quorum.tlsSecret", "insecure=true", "quorum.clientCertificate=true")
        self.refused(
            "terminationGracePeriodSeconds is 5; it must be longer than drainSeconds, which is 5",
            *("insecure=true", "terminationGracePeriodSeconds=5"),
        )

    def test_misspelt_values_and_options_are_refused(self):
        # Versions of helm word the message differently; all name the value.
        for value in ("replicas=1", "image.repositry=a", "tls.secret=a", "config.worker=2", "config.limits.claim=1"):
            self.refused(value.split("=")[0].split(".")[-1], "insecure=true", value)
        self.refused("workers", "insecure=true", "config.workers=two")

    def test_options_that_other_values_decide_are_refused_in_config(self):
        for key in DECIDED:
            self.refused(key.split(".")[-1], "insecure=true", f"config.{key}=a")


class Notes(unittest.TestCase):
    """The text that an installation prints."""

    @classmethod
    def setUpClass(cls):
        # Without a cluster helm does not print NOTES.txt, so a copy of the chart has it in a ConfigMap.
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.chart = shutil.copytree(CHART, pathlib.Path(cls.directory.name) / "waymaker")
        text = (CHART / "templates/NOTES.txt").read_text()
        (cls.chart / "templates/notes.yaml").write_text(
            '{{ define "notes" }}' + text + '{{ end }}{kind: Notes, apiVersion: v1, text: {{ include "notes" . | toJson }}}'
        )

    def notes(self, *arguments):
        result = helm("--show-only=templates/notes.yaml", *arguments, chart=self.chart)
        self.assertEqual(result.returncode, 0, result.stderr)
        (text,) = re.findall(r"text: (\".*\")\}$", result.stdout, re.MULTILINE)
        return json.loads(text)

    def test_the_commands_name_the_objects_and_the_address_of_the_release(self):
        notes = self.notes("--set=insecure=true")
        self.assertIn("kubectl --namespace locks rollout status statefulset/test-waymaker\n", notes)
        self.assertIn("kubectl --namespace locks port-forward service/test-waymaker 7420\n  waymaker-ctl lock", notes)
        self.assertIn(" waymaker://test-waymaker.locks.svc:7420\n", notes)
        self.assertIn("WARNING: with insecure=true", notes)
        self.assertNotIn("persistence", notes)

    def test_the_commands_have_the_options_for_tls_and_tokens(self):
        notes = self.notes(f"--values={HERE / 'values/tls.yaml'}")
        self.assertIn("waymaker-ctl --server waymaker+tls://localhost --tls-ca ca.pem --token-file me.token lock my-key", notes)
        self.assertIn(" waymaker+tls://test-waymaker.locks.svc:7420\n", notes)
        self.assertNotIn("WARNING", notes)
        notes = self.notes(f"--values={HERE / 'values/mutual-tls.yaml'}")
        self.assertIn("--tls-ca ca.pem --tls-cert me.pem --tls-key me.key lock my-key", notes)

    def test_lost_locks_and_a_stopped_server_are_mentioned(self):
        self.assertIn("WARNING: without persistence", self.notes("--set=insecure=true,persistence.enabled=false"))
        self.assertIn("The server is stopped", self.notes("--set=insecure=true,replicaCount=0"))


class Files(unittest.TestCase):
    """The files of the chart agree with each other and with the server."""

    def test_the_chart_has_the_version_of_the_workspace(self):
        version = tomllib.loads(read("Cargo.toml"))["workspace"]["package"]["version"]
        chart = CHART.relative_to(ROOT) / "Chart.yaml"
        self.assertEqual(find(r'^(?:version|appVersion): "?([^"\n]+)"?$', chart), [version, version])
        self.assertEqual(SETS["open"].container["image"], f"waymaker:{version}")

    def test_config_accepts_every_option_that_the_chart_does_not_decide(self):
        schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]
        expected = {}
        for key, value in documented_options().items():
            if key not in DECIDED:
                expected[key] = value
        found = {}
        for key, value in schema["properties"].items():
            if value.get("type") == "object":
                self.assertIs(value["additionalProperties"], False)
                found |= {f"{key}.{inner}": schema for inner, schema in value["properties"].items()}
            else:
                found[key] = value
        self.assertEqual(found, expected)
        self.assertLessEqual(DECIDED, documented_options().keys())

    def test_every_value_has_a_default_and_a_row_in_the_readme(self):
        schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
        defaults = re.findall(r"^(\w+):", (CHART / "values.yaml").read_text(), re.MULTILINE)
        self.assertEqual(set(defaults), schema.keys() - {"global"})
        rows = re.findall(r"^\| (`.+?) \|", (CHART / "README.md").read_text(), re.MULTILINE)
        named = {name.split(".")[0] for row in rows for name in re.findall(r"`([\w.]+)`", row)}
        self.assertEqual(set(defaults), named)


if __name__ == "__main__":
    unittest.main()
