"""Kubeflow's operators, played: what they make of a manifest, in containers on one network.

Names, files, modes and variables are those of the MPI operator 0.8.0 (`newWorker`,
`newLauncherPodTemplate`, `newConfigMap`, `setupSSHOnPod` of pkg/controller/mpi_job_controller.go)
and of the training operator 1.8.1 (pkg/controller.v1/tensorflow/tensorflow.go). A Secret's volume
is a folder of mode 1777 whose files, root's and of mode 0644, are links through `..data`.
"""

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from support.checkout import Checkout

NAMESPACE = "default"
SSH_FILES = {"id_rsa": "key", "id_rsa.pub": "key.pub", "authorized_keys": "key.pub"}
HOSTFILE = "/etc/mpi/hostfile"
VARIABLES = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": HOSTFILE,
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": "{slots}",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": HOSTFILE,
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
        "I_MPI_PERHOST": "{slots}",
    },
}
HOSTFILE_LINE = {"OpenMPI": "{host} slots={slots}", "Intel": "{host}:{slots}"}
TF_PORT = 2222
Mount = tuple[Path, str]  #: a folder, and where it is mounted


@dataclass
class Cluster:
    """A network, the folders behind a manifest's `volumes`, and the containers of one job."""

    checkout: Checkout
    folder: Path
    volumes: dict[str, Path]
    network: str
    """It begins the names of the containers, too."""
    _pods: list[str] = field(default_factory=list)

    def run(self, manifest: str) -> str:
        """Start the containers of a manifest; return what the launcher or the chief printed."""
        job = yaml.safe_load(manifest)
        return self._run_mpijob(job) if job["kind"] == "MPIJob" else self._run_tfjob(job)

    def _run_mpijob(self, job: Any) -> str:
        name, spec = job["metadata"]["name"], job["spec"]
        flavour, slots = spec.get("mpiImplementation", "OpenMPI"), spec.get("slotsPerWorker", 1)
        replicas = spec["mpiReplicaSpecs"]
        workers = [f"{name}-worker-{i}" for i in range(replicas["Worker"]["replicas"])]
        ssh = (self._secret(), spec["sshAuthMountPath"])
        for worker in workers:
            self._pod(job, worker, replicas["Worker"], {"K_MPI_JOB_ROLE": "worker"}, ssh)
            self._wait_until_ready(worker, replicas["Worker"])
        variables = {n: v.format(slots=slots) for n, v in VARIABLES[flavour].items()}
        hosts = [f"{worker}.{name}.{NAMESPACE}.svc" for worker in workers]
        lines = [f"{HOSTFILE_LINE[flavour].format(host=host, slots=slots)}\n" for host in hosts]
        config = _volume(self.folder / "mpi", {"hostfile": "".join(lines).encode()}, mode=0o755)
        variables["K_MPI_JOB_ROLE"] = "launcher"
        launcher = f"{name}-launcher"
        self._pod(job, launcher, replicas["Launcher"], variables, ssh, (config, "/etc/mpi"))
        return self._outcome(launcher)

    def _run_tfjob(self, job: Any) -> str:
        name, replicas = job["metadata"]["name"], job["spec"]["tfReplicaSpecs"]
        pods = {
            kind: [f"{name}-{kind.lower()}-{index}" for index in range(replica["replicas"])]
            for kind, replica in replicas.items()
        }
        cluster = {
            kind.lower(): [f"{pod}.{NAMESPACE}.svc:{TF_PORT}" for pod in names]
            for kind, names in pods.items()
        }
        for kind, names in pods.items():
            for index, pod in enumerate(names):
                task = {"type": kind.lower(), "index": index}
                config = {"cluster": cluster, "task": task, "environment": "cloud"}
                self._pod(job, pod, replicas[kind], {"TF_CONFIG": json.dumps(config)})
        return self._outcome(f"{name}-chief-0")

    def _pod(
        self, job: Any, name: str, replica: Any, variables: dict[str, str], *mounts: Mount
    ) -> None:
        """Start the one container of a replica, as root only where the manifest says so."""
        (container,) = replica["template"]["spec"]["containers"]
        service = f"{name}.{job['metadata']['name']}.{NAMESPACE}.svc"
        aliases = (name, service, f"{name}.{NAMESPACE}.svc")
        self._pods.append(f"{self.network}-{name}")
        options = [f"--network={self.network}", f"--name={self._pods[-1]}", f"--hostname={name}"]
        options += [f"--network-alias={alias}" for alias in aliases]
        options += [f"--user={container['securityContext']['runAsUser']}"]
        named = {one["name"]: one["value"] for one in container.get("env", ())}
        options += [f"--env={name}={value}" for name, value in {**variables, **named}.items()]
        options += [f"--volume={source}:{target}:ro" for source, target in mounts]
        options += _mounts(replica, container, self.volumes)
        options += [f"--workdir={container['workingDir']}"]
        run = ("run", "--detach", *options)
        self.checkout.printed(*run, container["image"], *map(str, container["args"]))

    def _wait_until_ready(self, worker: str, replica: Any) -> None:
        """Wait for what the manifest's readiness probe waits for."""
        (container,) = replica["template"]["spec"]["containers"]
        port = container["readinessProbe"]["tcpSocket"]["port"]
        probe = f"timeout 30 bash -c 'until : < /dev/tcp/127.0.0.1/{port}; do sleep 0.1; done'"
        self.checkout.printed("exec", f"{self.network}-{worker}", "bash", "-c", probe)

    def _outcome(self, pod: str) -> str:
        """Wait for a container's end; return what it printed, or fail with that of all."""
        with suppress(subprocess.TimeoutExpired):
            if self.checkout.printed("wait", f"{self.network}-{pod}") == "0":
                return self.checkout.docker("logs", f"{self.network}-{pod}").stdout
        logs = {pod: self.checkout.docker("logs", "--tail=20", pod) for pod in self._pods}
        raise AssertionError(f"{pod} did not end with 0: {logs}")

    def _secret(self) -> Path:
        """Return a folder as Kubernetes mounts the operator's Secret: an ECDSA key for all."""
        options = ("-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-C", "")
        subprocess.run(["ssh-keygen", *options, "-f", self.folder / "key"], check=True)
        files = {name: (self.folder / key).read_bytes() for name, key in SSH_FILES.items()}
        return _volume(self.folder / "ssh", files)


def _mounts(replica: Any, container: Any, volumes: dict[str, Path]) -> list[str]:
    """Return what mounts a pod's volumes; one in memory is what Docker itself mounts there."""
    memory = {
        one["name"]: one["emptyDir"]["sizeLimit"].removesuffix("i")
        for one in replica["template"]["spec"]["volumes"]
        if one.get("emptyDir", {}).get("medium") == "Memory"
    }
    options = []
    for mount in container["volumeMounts"]:
        name, path = mount["name"], mount["mountPath"]
        if name in memory:
            assert path == "/dev/shm"  # noqa: S108
            options.append(f"--shm-size={memory[name]}")
        else:
            mode = "ro" if mount.get("readOnly") else "rw"
            options.append(f"--volume={volumes[name]}:{path}:{mode}")
    return options


def _volume(folder: Path, files: dict[str, bytes], mode: int = 0o1777) -> Path:
    """Lay files as kubelet does, which wants to swap them all at once."""
    (folder / "..first").mkdir(parents=True)
    for name, content in files.items():
        path = folder / "..first" / name
        path.write_bytes(content)
        path.chmod(0o644)
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to("..first")
    os.chmod(folder, mode)  # noqa: PTH101 - mkdir's would be cut by the umask
    return folder
