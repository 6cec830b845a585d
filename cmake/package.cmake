# `make install`: program, library, headers, man page, docs, examples, pkg-config file, CMake package.
# Everything is found from where it lies, so a prefix may be moved and DESTDIR works.
include(CMakePackageConfigHelpers)

set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
set(generated ${CMAKE_BINARY_DIR}/package)

# What a static link needs beside libtutti.a, by the names of the linker.
set(TUTTI_PRIVATE_TARGETS "")
foreach(lib ${TUTTI_LIBS_all})
  string(REGEX REPLACE "^(PkgConfig|DNNL)::(lib)?" "" lib ${lib})
  string(REPLACE "ZLIB::ZLIB" "z" lib ${lib})
  string(REPLACE "Threads::Threads" "pthread" lib ${lib})
  list(APPEND TUTTI_PRIVATE_TARGETS ${lib})
endforeach()
list(JOIN TUTTI_PRIVATE_TARGETS " -l" TUTTI_PRIVATE_LIBS)
set(TUTTI_PRIVATE_LIBS "-l${TUTTI_PRIVATE_LIBS}")

file(RELATIVE_PATH TUTTI_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tutti.pc.in ${generated}/tutti.pc @ONLY)
configure_package_config_file(cmake/tuttiConfig.cmake.in ${generated}/tuttiConfig.cmake
                              INSTALL_DESTINATION ${cmake_dir}
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${generated}/tuttiConfigVersion.cmake
                                 COMPATIBILITY SameMajorVersion)

install(TARGETS tutti_shared EXPORT tuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tutti)
  install(TARGETS tutti RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${cmake_dir})
install(FILES ${generated}/tuttiConfig.cmake ${generated}/tuttiConfigVersion.cmake
        DESTINATION ${cmake_dir})
install(FILES ${generated}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE README.md README.zh.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "*.scd" EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti)

find_program(SCDOC_PROGRAM scdoc)
if(SCDOC_PROGRAM)
  set(man_page ${generated}/tutti.1)
  add_custom_command(OUTPUT ${man_page} DEPENDS ${CMAKE_SOURCE_DIR}/docs/tutti.1.scd
                     COMMAND sh -c "\"$0\" < \"$1\" > \"$2\"" ${SCDOC_PROGRAM}
                             ${CMAKE_SOURCE_DIR}/docs/tutti.1.scd ${man_page}
                     VERBATIM)
  add_custom_target(tutti_man ALL DEPENDS ${man_page})
  install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
