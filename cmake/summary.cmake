# What this build is made of.
message(STATUS "tutti ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} "
        "${CMAKE_C_COMPILER_VERSION}, oneDNN ${TUTTI_HAVE_ONEDNN}, "
        "sanitizer '${TUTTI_SANITIZE}', fuzz ${TUTTI_FUZZ}")
