# find_package(Terrace): Terrace::Terrace for C and Fortran, Terrace::Cxx for <terrace/terrace.hpp>.
#
# Paths are taken from where this file lies, so that what is installed may be moved. Its real place: a system's /lib may be a link to /usr/lib.
get_filename_component(Terrace_PREFIX "${CMAKE_CURRENT_LIST_FILE}" REALPATH)
get_filename_component(Terrace_PREFIX "${Terrace_PREFIX}/../../../.." ABSOLUTE)
foreach(file "lib/libterrace.so" "include/terrace.h")
    if(NOT EXISTS "${Terrace_PREFIX}/${file}")
        set(Terrace_FOUND FALSE)
        set(Terrace_NOT_FOUND_MESSAGE "${Terrace_PREFIX}/${file} is missing; install Terrace again.")
        return()
    endif()
endforeach()

if(NOT TARGET Terrace::Terrace)
    add_library(Terrace::Terrace SHARED IMPORTED)
    set_target_properties(Terrace::Terrace PROPERTIES
        IMPORTED_LOCATION "${Terrace_PREFIX}/lib/libterrace.so"
        INTERFACE_INCLUDE_DIRECTORIES "${Terrace_PREFIX}/include")
endif()
if(NOT TARGET Terrace::Cxx)
    add_library(Terrace::Cxx INTERFACE IMPORTED)
    set_target_properties(Terrace::Cxx PROPERTIES
        INTERFACE_LINK_LIBRARIES Terrace::Terrace
        INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
