from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Terrace(Package):
    """User-space, tiered data runtime for scientific workflows: runs unmodified programs on
    faster storage tiers and flushes what they write to the parallel file system."""

    homepage = "https://terrace.invalid/terrace"
    git = "https://terrace.invalid/terrace.git"

    license("Apache-2.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("sql", default=False, description="The SQL engine; takes a quarter of an hour")
    variant("fabric", default=True, description="Transfers by libfabric where it is")

    depends_on("c", type="build")
    depends_on("rust@1.94:", type="build")
    depends_on("gmake", type="build")
    depends_on("libfabric", when="+fabric")

    conflicts("platform=darwin", msg="Terrace intercepts Linux's system calls")
    conflicts("platform=windows", msg="Terrace intercepts Linux's system calls")
    conflicts("target=aarch64:", msg="the preload library is written for x86-64")

    sanity_check_is_file = ["bin/terrace", "lib/libterrace.so", "include/terrace.h"]

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # Crates are kept with the build, not in the user's home.
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))
        if self.spec.satisfies("+fabric"):
            env.set("LIBFABRIC_INCLUDE", self.spec["libfabric"].prefix.include)
        if self.spec.satisfies("~sql"):
            env.set("TERRACE_WITHOUT_SQL", "1")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")

    def test_version(self):
        """the command says its version"""
        terrace = which(self.prefix.bin.terrace, required=True)
        assert "terrace" in terrace("--version", output=str.split, error=str.split)
