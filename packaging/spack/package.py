from spack.package import *


class Terrace(Package):
    """User-space, tiered data runtime for scientific workflows: runs unmodified programs on faster storage tiers and
    flushes what they write to the parallel file system."""

    homepage = "https://terrace.invalid/terrace"
    git = "https://terrace.invalid/terrace.git"

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("sql", default=False, description="The SQL engine; its build takes a quarter of an hour")
    variant("fabric", default=True, description="Transfers by libfabric where it is")

    depends_on("c", type="build")
    depends_on("rust@1.94:", type="build")
    depends_on("gmake", type="build")
    depends_on("libfabric", when="+fabric")

    conflicts("platform=darwin", msg="Terrace intercepts Linux's system calls")
    conflicts("target=aarch64:", msg="the preload library is written for x86-64")

    def setup_build_environment(self, env):
        if self.spec.satisfies("+fabric"):
            env.set("LIBFABRIC_INCLUDE", self.spec["libfabric"].prefix.include)
        if self.spec.satisfies("~sql"):
            env.set("TERRACE_WITHOUT_SQL", "1")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")
