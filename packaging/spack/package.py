# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Starpipe(AutotoolsPackage, CudaPackage):
    """starpipe trains GPTs on long sequences in pipeline stages, with published
    schedules, on one machine, a cluster or GPUs. Tasks run on StarPU."""

    homepage = "https://example.org/starpipe"
    url = "https://example.org/starpipe/starpipe-0.2.0.tar.gz"

    license("BSD-3-Clause")

    version("0.2.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant(
        "simgrid",
        default=False,
        description="Simulate runs in virtual time, and train nothing (starpipe-sim)",
    )
    variant("mpi", default=True, when="~simgrid", description="Stages in several processes")
    variant("nccl", default=False, when="+cuda", description="Messages between GPUs over NCCL")
    variant("fxt", default=False, description="Traces of StarPU")
    variant(
        "gemm",
        default="cblas",
        values=("cblas", "onednn"),
        multi=False,
        description="Matrix products",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("hwloc@2:")
    depends_on("jansson@2.10:")
    depends_on("pcre2@10.30:")
    depends_on("utf8proc@2.1: +shared")
    depends_on("xxhash@0.8:")
    depends_on("openblas", when="gemm=cblas")
    depends_on("onednn", when="gemm=onednn")
    depends_on("cmocka@1.1:", type="test")
    depends_on("python", type="test")

    depends_on("starpu@1.4.5:1.4")
    depends_on("starpu +mpi", when="+mpi")
    depends_on("starpu +cuda", when="+cuda")
    depends_on("starpu +fxt", when="+fxt")
    depends_on("starpu ~simgrid", when="~simgrid")
    # With MPI StarPU would be a static library there, and starpipe simulates in one process.
    depends_on("starpu +simgrid +blocking ~mpi", when="+simgrid")
    depends_on("simgrid@3.32:", when="+simgrid")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")

    conflicts("+cuda", when="+simgrid", msg="What is simulated needs no GPU")
    conflicts("+fxt", when="+simgrid", msg="Simulated runs have traces of their own")

    def configure_args(self):
        spec = self.spec

        def choice(variant):
            return "--with-%s=%s" % (variant, "yes" if "+" + variant in spec else "no")

        args = [choice(variant) for variant in ("mpi", "cuda", "nccl", "simgrid")]
        args += ["--with-tokenizer=yes", "--with-gemm=" + spec.variants["gemm"].value]
        if spec.satisfies("+mpi"):
            args.append("MPICC=" + spec["mpi"].mpicc)
        if spec.satisfies("+cuda") and "none" not in spec.variants["cuda_arch"].value:
            args.append("--with-cuda-arch=" + ",".join(spec.variants["cuda_arch"].value))
        return args

    def check(self):
        make("check-packaged")
