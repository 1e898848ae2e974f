"""A cluster on one machine: a network namespace for each worker, joined by a bridge, whose rates of sending and
receiving `tc` limits. The cores of workers can be made slower, so that a few real ones are enough. Needs root,
iproute2 and Open MPI; all of it is removed at the end.

    with Cluster(4, slow=4) as cluster:
        cluster.throttle(100)                   # Mbit/s, 0: not limited
        cluster.mpirun(["build/starpipe", ...])
"""
import os
import shutil
import subprocess
import sys
import tempfile

NAME = "spns"
NET = "10.77.31"

# Jumbo frames: with 1500 bytes the kernel takes half of two cores to carry 200 Mbit/s of four workers.
MTU = "9000"

# Of TCP every poll takes tens of us, which a node of one worker has and a core of two workers that wait has not.
POLL_US = 400

AGENT = """#!/bin/bash
host=$1
shift
n=${host##*.}
exec ip netns exec NAME$n unshare --uts taskset -c $(((n - 1) % CORES)) bash -c "hostname NAME$n; $*"
"""


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL)


class Cluster:
    def __init__(self, workers, slow=1.0, build="build"):
        """slow: every op takes so many times the time that it has of a core; build: where `make bench` was."""
        self.workers, self.slow = workers, slow
        self.preload = os.path.join(os.path.abspath(build), "bench/.libs/slow_cores.so")
        if slow > 1 and not os.path.exists(self.preload):
            sys.exit(f"{self.preload} is missing: make -C {build} bench")

    def __enter__(self):
        self._remove()
        self.path = tempfile.mkdtemp(prefix="starpipe-namespaces-")
        ip("netns", "add", NAME + "0")
        ip("-n", NAME + "0", "link", "add", "bridge", "type", "bridge")
        ip("-n", NAME + "0", "link", "set", "bridge", "up")
        for i in range(1, self.workers + 1):
            self._add(i)
        self._write_launcher()
        return self

    def __exit__(self, *_):
        self._remove()
        shutil.rmtree(self.path)

    def _add(self, i):
        ns = NAME + str(i)
        ip("netns", "add", ns)
        ip("link", "add", "eth0", "netns", ns, "type", "veth", "peer", "name", f"port{i}", "netns", NAME + "0")
        ip("-n", ns, "link", "set", "eth0", "mtu", MTU)
        ip("-n", NAME + "0", "link", "set", f"port{i}", "mtu", MTU, "master", "bridge", "up")
        ip("-n", ns, "addr", "add", f"{NET}.{i}/24", "dev", "eth0")
        ip("-n", ns, "link", "set", "eth0", "up")
        ip("-n", ns, "link", "set", "lo", "up")
        # as clusters have it; flows of BBR share a slow port less evenly
        ip("-n", ns, "route", "change", NET + ".0/24", "dev", "eth0", "congctl", "cubic", check=False)

    def _remove(self):
        for i in range(self.workers, -1, -1):
            ip("netns", "del", NAME + str(i), check=False)

    def _write_launcher(self):
        with open(self.path + "/hosts", "w") as f:
            for i in range(1, self.workers + 1):
                f.write(f"{NET}.{i} slots=1\n")
        with open(self.path + "/agent", "w") as f:
            f.write(AGENT.replace("NAME", NAME).replace("CORES", str(os.cpu_count())))
        os.chmod(self.path + "/agent", 0o755)

    def throttle(self, mbit, workers=None):
        """What each worker sends, and receives, at most; 0: no limit. workers: which, 0 the first; None: all."""
        burst = f"{max(16, mbit // 6)}kb"  # little, or short messages would not be held up at all
        for i in range(1, self.workers + 1) if workers is None else [w + 1 for w in workers]:
            for ns, device in ((NAME + str(i), "eth0"), (NAME + "0", f"port{i}")):
                tc = ["ip", "netns", "exec", ns, "tc", "qdisc"]
                subprocess.run([*tc, "del", "dev", device, "root"], stderr=subprocess.DEVNULL)
                if mbit:
                    subprocess.run([*tc, "add", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst", burst,
                                    "latency", "200ms"], check=True)

    def mpirun(self, command, processes=0, slow=True, timeout=600, variables=()):
        """Runs a command as one process a worker, or on the first few; what it printed. variables: "NAME=value" of
        slow_cores.c, beside `slow`."""
        mpi = ["mpirun", "--allow-run-as-root", "--hostfile", self.path + "/hosts", "-np",
               str(processes or self.workers), "--mca", "plm_rsh_agent", self.path + "/agent", "--mca", "btl", "tcp,self",
               "--mca", "btl_tcp_if_include", NET + ".0/24", "--mca", "oob_tcp_if_include", NET + ".0/24",
               "--bind-to", "none", "-x", "STARPU_HOME"]
        if slow and (self.slow > 1 or variables):
            for variable in (f"SLOW_CORES={self.slow:g}", f"LD_PRELOAD={self.preload}", f"SP_POLL_US={POLL_US}", *variables):
                mpi += ["-x", variable]
        first = f'hostname {NAME}1; exec "$@"'
        done = subprocess.run(["ip", "netns", "exec", NAME + "1", "unshare", "--uts", "taskset", "-c", "0", "bash", "-c",
                               first, "sh", *mpi, *command],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout,
                              env=dict(os.environ, STARPU_HOME=self.path))
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr[-400:]}")
        return done.stdout
