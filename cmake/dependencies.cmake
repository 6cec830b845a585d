# What is looked for, and the table that says what was found.
set(TUTTI_WITH_ONEDNN AUTO CACHE STRING "AUTO, ON or OFF: fast CPU kernels from oneDNN")

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(yaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)

# Not by oneDNN's own CMake package: Debian's asks for OpenCL headers that nothing here needs.
set(TUTTI_HAVE_ONEDNN 0)
if(NOT TUTTI_WITH_ONEDNN STREQUAL "OFF")
  find_path(DNNL_INCLUDE_DIR dnnl.h)
  find_library(DNNL_LIBRARY NAMES dnnl)
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
    set(TUTTI_HAVE_ONEDNN 1)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
  elseif(TUTTI_WITH_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "oneDNN was asked for and not found: install libdnnl-dev")
  endif()
endif()

# Pictures: JPEG by libjpeg-turbo (its jpeglib.h knows how to skip rows), PNG by libpng.
set(TUTTI_IMAGE_LIBS "")
foreach(kind JPEG PNG)
  set(TUTTI_WITH_${kind} AUTO CACHE STRING "AUTO, ON or OFF: reading of ${kind} files")
  string(TOLOWER lib${kind} module)
  set(TUTTI_HAVE_${kind} 0)
  if(NOT TUTTI_WITH_${kind} STREQUAL "OFF")
    pkg_check_modules(${module} IMPORTED_TARGET ${module})
    if(${module}_FOUND)
      set(TUTTI_HAVE_${kind} 1)
      list(APPEND TUTTI_IMAGE_LIBS PkgConfig::${module})
    elseif(TUTTI_WITH_${kind} STREQUAL "ON")
      message(FATAL_ERROR "${kind} was asked for and not found: install ${module}-dev")
    endif()
  endif()
endforeach()
message(STATUS "JPEG: ${TUTTI_HAVE_JPEG}, PNG: ${TUTTI_HAVE_PNG}")
message(STATUS "oneDNN: ${TUTTI_HAVE_ONEDNN} ${DNNL_LIBRARY}")

# For a wheel (python/backend): libtutti.so looks for the libraries that it needs in no folder of this
# machine but its own.
option(TUTTI_WHEEL "libtutti.so finds its libraries in its own folder" OFF)
