-- Environment module (Lmod) of Terrace: this directory's parent is where it was unpacked.
help([[Terrace runs unmodified programs on faster storage tiers and flushes what they write: terrace run -- COMMAND]])
whatis("Name: terrace")
whatis("Version: @VERSION@")
whatis("Description: a user-space, tiered data runtime for scientific workflows")

local prefix = pathJoin(myFileName():match("(.*)/share/modulefiles/"), "")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("CPATH", pathJoin(prefix, "include"))
prepend_path("LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
