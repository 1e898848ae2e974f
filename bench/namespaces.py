"""A cluster on one machine: a network namespace for each worker, joined by a bridge, whose rates of sending and
receiving `tc` limits and whose part of the cores a CPU cgroup limits. Needs root, iproute2 and Open MPI; all of it
is removed at the end.

    with Cluster(4, cores=0.45) as cluster:
        cluster.throttle(200)                   # Mbit/s, 0: not limited
        cluster.mpirun(["build/starpipe", ...])
"""
import os
import shutil
import subprocess
import sys
import tempfile

NAME = "spns"
NET = "10.77.31"

# Periods of a CPU's time are as short as the kernel allows, so that an op of milliseconds sees an even rate.
QUOTA_US = 1000

AGENT = """#!/bin/bash
host=$1
shift
n=${host##*.}
%s
exec ip netns exec NAME$n unshare --uts taskset -c $(((n - 1) %% CORES)) bash -c "hostname NAME$n; $*"
"""


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL)


def cgroups():
    """The directory of CPU cgroups, of the first or the second version; None: there is none to write to."""
    for path, quota in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")):
        try:
            os.mkdir(f"{path}/{NAME}")
        except OSError:
            continue
        there = os.path.exists(f"{path}/{NAME}/{quota}")
        os.rmdir(f"{path}/{NAME}")
        if there:
            return path
    return None


class Cluster:
    def __init__(self, workers, cores=0.0):
        """cores: of each worker, less than one; 0: no limit."""
        self.workers, self.cores = workers, cores
        self.cgroups = cgroups() if cores else None
        if cores and not self.cgroups:
            sys.exit("no CPU cgroup can be made here")

    def __enter__(self):
        self._remove()
        self.path = tempfile.mkdtemp(prefix="starpipe-namespaces-")
        if self.cores:  # `ip netns exec` has a /sys of its own, without cgroups
            os.mkdir(self.path + "/cgroups")
            subprocess.run(["mount", "--bind", self.cgroups, self.path + "/cgroups"], check=True)
        ip("netns", "add", NAME + "0")
        ip("-n", NAME + "0", "link", "add", "bridge", "type", "bridge")
        ip("-n", NAME + "0", "link", "set", "bridge", "up")
        for i in range(1, self.workers + 1):
            self._add(i)
        self._write_launcher()
        return self

    def __exit__(self, *_):
        self._remove()
        if self.cores:
            subprocess.run(["umount", self.path + "/cgroups"], check=True)
        shutil.rmtree(self.path)

    def _add(self, i):
        ns = NAME + str(i)
        ip("netns", "add", ns)
        ip("link", "add", "eth0", "netns", ns, "type", "veth", "peer", "name", f"port{i}", "netns", NAME + "0")
        ip("-n", NAME + "0", "link", "set", f"port{i}", "master", "bridge", "up")
        ip("-n", ns, "addr", "add", f"{NET}.{i}/24", "dev", "eth0")
        ip("-n", ns, "link", "set", "eth0", "up")
        ip("-n", ns, "link", "set", "lo", "up")
        if not self.cores:
            return
        period = int(QUOTA_US / self.cores)
        os.mkdir(f"{self.cgroups}/{ns}")
        first = os.path.exists(f"{self.cgroups}/{ns}/cpu.cfs_quota_us")
        for file, value in ([("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", QUOTA_US)] if first
                            else [("cpu.max", f"{QUOTA_US} {period}")]):
            with open(f"{self.cgroups}/{ns}/{file}", "w") as f:
                f.write(str(value))

    def _remove(self):
        for i in range(self.workers, -1, -1):
            ip("netns", "del", NAME + str(i), check=False)
            if self.cgroups and os.path.isdir(f"{self.cgroups}/{NAME}{i}"):
                os.rmdir(f"{self.cgroups}/{NAME}{i}")

    def _enter_cgroup(self, n):
        return f"echo $$ > {self.path}/cgroups/{NAME}{n}/cgroup.procs || exit" if self.cores else ":"

    def _write_launcher(self):
        with open(self.path + "/hosts", "w") as f:
            for i in range(1, self.workers + 1):
                f.write(f"{NET}.{i} slots=1\n")
        with open(self.path + "/agent", "w") as f:
            f.write((AGENT % self._enter_cgroup("$n")).replace("NAME", NAME).replace("CORES", str(os.cpu_count())))
        os.chmod(self.path + "/agent", 0o755)

    def throttle(self, mbit):
        """What each worker sends, and receives, at most; 0: no limit."""
        burst = f"{max(16, mbit // 6)}kb"  # little, or short messages would not be held up at all
        for i in range(1, self.workers + 1):
            for ns, device in ((NAME + str(i), "eth0"), (NAME + "0", f"port{i}")):
                tc = ["ip", "netns", "exec", ns, "tc", "qdisc"]
                subprocess.run([*tc, "del", "dev", device, "root"], stderr=subprocess.DEVNULL)
                if mbit:
                    subprocess.run([*tc, "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", burst,
                                    "latency", "200ms"], check=True)

    def mpirun(self, command, timeout=600):
        """Runs a command as one process a worker; what it printed."""
        mpi = ["mpirun", "--allow-run-as-root", "--hostfile", self.path + "/hosts", "-np", str(self.workers),
               "--mca", "plm_rsh_agent", self.path + "/agent", "--mca", "btl", "tcp,self",
               "--mca", "btl_tcp_if_include", NET + ".0/24", "--mca", "oob_tcp_if_include", NET + ".0/24",
               "--bind-to", "none", "-x", "STARPU_HOME", *command]
        first = f'{self._enter_cgroup(1)}; hostname {NAME}1; exec "$@"'
        done = subprocess.run(["ip", "netns", "exec", NAME + "1", "unshare", "--uts", "taskset", "-c", "0", "bash", "-c",
                               first, "sh", *mpi],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout,
                              env=dict(os.environ, STARPU_HOME=self.path))
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr[-400:]}")
        return done.stdout
