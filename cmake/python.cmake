# The Python package: build/python/tutti, importable with PYTHONPATH=build/python.
#
# Modules are copied from python/tutti, bindings are made from the public headers, lib/ links to the
# library, and bin/ has a program that uses it.  `make wheel` packs such a folder (python/backend).
find_package(Python3 COMPONENTS Interpreter QUIET)

function(tutti_python_package)
  if(NOT Python3_FOUND OR TUTTI_FUZZ OR NOT TARGET tutti)
    return()
  endif()
  set(out ${CMAKE_BINARY_DIR}/python/tutti)
  file(MAKE_DIRECTORY ${out}/lib ${out}/bin)
  if(IS_SYMLINK ${out}/bin/tutti) # of an older build; the linker would write to the file behind it
    file(REMOVE ${out}/bin/tutti)
  endif()
  file(WRITE ${out}/_version.py.new "\"\"\"The version of the library.\"\"\"\n\n__version__ = \"${PROJECT_VERSION}\"\n")
  file(COPY_FILE ${out}/_version.py.new ${out}/_version.py ONLY_IF_DIFFERENT)
  file(REMOVE ${out}/_version.py.new)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/tutti/*)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/tutti/*.h)
  set(bindings ${CMAKE_SOURCE_DIR}/tools/make-python-bindings)
  add_custom_command(OUTPUT ${out}/_c.py ${out}/_c.pyi DEPENDS ${bindings} ${headers} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${Python3_EXECUTABLE} ${bindings} ${out}
            --layout ${CMAKE_BINARY_DIR}/python/layout.c
    COMMENT "Making the Python bindings")
  set(copies "")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME)
    if(name STREQUAL "__pycache__")
      continue()
    endif()
    add_custom_command(OUTPUT ${out}/${name} DEPENDS ${source} VERBATIM
                       COMMAND ${CMAKE_COMMAND} -E copy ${source} ${out}/${name})
    list(APPEND copies ${out}/${name})
  endforeach()
  add_custom_target(tutti_python ALL DEPENDS ${out}/_c.py ${out}/_c.pyi ${copies} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:tutti_shared> ${out}/lib/libtutti.so.0)
  add_dependencies(tutti_python tutti_shared tutti_of_package)
endfunction()
