# Links over MPI, one module for each implementation that is found: build/tutti-mpi-openmpi.so,
# build/tutti-mpi-mpich.so.  Their binary interfaces differ, and the program links neither.
#
# An implementation is found by its pkg-config file (Debian has both side by side) or, for one in a
# place of its own, by -DTUTTI_MPI_OPENMPI_HOME=DIR, -DTUTTI_MPI_MPICH_HOME=DIR (include/, lib/).
set(TUTTI_WITH_MPI AUTO CACHE STRING "AUTO, ON or OFF: the links over MPI")
set(TUTTI_MPI_OPENMPI_HOME "" CACHE PATH "where Open MPI is, if pkg-config does not know")
set(TUTTI_MPI_MPICH_HOME "" CACHE PATH "where MPICH, or an MPI of its interface, is")

# Sets found_NAME, and the target tutti_mpi_api_NAME with headers and library.
function(tutti_find_mpi name package library)
  string(TOUPPER ${name} upper)
  set(found_${name} 0 PARENT_SCOPE)
  if(TARGET tutti_mpi_api_${name} OR TUTTI_WITH_MPI STREQUAL "OFF")
    return()
  endif()
  set(home "${TUTTI_MPI_${upper}_HOME}")
  add_library(tutti_mpi_api_${name} INTERFACE)
  if(home)
    find_library(TUTTI_MPI_${upper}_LIBRARY NAMES ${library} mpi HINTS ${home}/lib ${home}/lib64
                 NO_DEFAULT_PATH)
    if(TUTTI_MPI_${upper}_LIBRARY AND EXISTS ${home}/include/mpi.h)
      target_include_directories(tutti_mpi_api_${name} SYSTEM INTERFACE ${home}/include)
      target_link_libraries(tutti_mpi_api_${name} INTERFACE ${TUTTI_MPI_${upper}_LIBRARY})
      set(found_${name} 1 PARENT_SCOPE)
    endif()
    return()
  endif()
  pkg_check_modules(TUTTI_MPI_${upper} QUIET ${package})
  if(TUTTI_MPI_${upper}_FOUND)
    target_include_directories(tutti_mpi_api_${name} SYSTEM INTERFACE
                               ${TUTTI_MPI_${upper}_INCLUDE_DIRS})
    target_link_directories(tutti_mpi_api_${name} INTERFACE ${TUTTI_MPI_${upper}_LIBRARY_DIRS})
    target_link_libraries(tutti_mpi_api_${name} INTERFACE ${library}) # what it needs it knows
    set(found_${name} 1 PARENT_SCOPE)
  endif()
endfunction()

function(tutti_mpi_module name)
  set(target tutti_mpi_${name})
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/src/comm/mpi/link.c
              ${CMAKE_SOURCE_DIR}/src/base/error.c ${CMAKE_SOURCE_DIR}/src/base/clock.c)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME tutti-mpi-${name}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_compile_definitions(${target} PRIVATE TUTTI_VERSION="${PROJECT_VERSION}"
                             TUTTI_MPI_NAME="mpi-${name}")
  target_link_libraries(${target} PRIVATE tutti_mpi_api_${name} Threads::Threads)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
endfunction()

function(tutti_mpi_modules)
  if(TUTTI_FUZZ OR NOT TUTTI_SANITIZE STREQUAL "")
    return()
  endif()
  tutti_find_mpi(openmpi ompi-c mpi)
  tutti_find_mpi(mpich mpich mpich)
  set(found "")
  foreach(name openmpi mpich)
    if(found_${name})
      tutti_mpi_module(${name})
      list(APPEND found ${name})
    endif()
  endforeach()
  if(TUTTI_WITH_MPI STREQUAL "ON" AND NOT found)
    message(FATAL_ERROR "MPI was asked for and not found: libopenmpi-dev or libmpich-dev")
  endif()
  set(TUTTI_MPI_FOUND "${found}" PARENT_SCOPE)
  message(STATUS "MPI: ${found}")
endfunction()
