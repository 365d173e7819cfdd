#%Module1.0
## Environment module (Tcl) of Terrace: four directories up from this file is where it was unpacked.
proc ModulesHelp {} {
    puts stderr "Terrace runs unmodified programs on faster storage tiers and flushes what they write: terrace run -- COMMAND"
}
module-whatis "terrace @VERSION@: a user-space, tiered data runtime for scientific workflows"

set prefix [file dirname [file dirname [file dirname [file dirname [file normalize $ModulesCurrentModulefile]]]]]
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
prepend-path LD_LIBRARY_PATH $prefix/lib
prepend-path CPATH $prefix/include
prepend-path LIBRARY_PATH $prefix/lib
prepend-path PKG_CONFIG_PATH $prefix/lib/pkgconfig
