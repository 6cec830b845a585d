# Warnings, hardening, sanitizers.  Every flag is probed: gcc 12, gcc 13 and clang 14 differ.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(TUTTI_SANITIZE "" CACHE STRING "empty, address (ASan+UBSan) or thread (TSan)")
option(TUTTI_WERROR "warnings are errors: for developers; a user's compiler may be newer than ours" OFF)
option(TUTTI_FUZZ "build the fuzz targets of tests/fuzz instead of the tests (needs clang)" OFF)

function(tutti_flag flag)
  string(MAKE_C_IDENTIFIER "TUTTI_HAS${flag}" var)
  check_c_compiler_flag(${flag} ${var})
  if(${var})
    add_compile_options(${flag})
  endif()
endfunction()

set(werror "")
if(TUTTI_WERROR)
  set(werror -Werror)
endif()
foreach(flag -Wall -Wextra -Wno-format-truncation -Wconversion -Wshadow -Wformat=2 -Wimplicit-fallthrough -Wvla
        -Wstrict-prototypes -Wmissing-prototypes -Wundef ${werror}
        -fstack-protector-strong -fstack-clash-protection -fcf-protection=full
        -fno-delete-null-pointer-checks -fno-strict-overflow
        # The same bits on every CPU and in every room: no contraction behind our back.
        -ffp-contract=off)
  tutti_flag(${flag})
endforeach()
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  # Enums are unsigned to clang (gcc looks at the rest); a loop that a sanitizer keeps scalar is fine.
  add_compile_options(-Wno-sign-conversion -Wno-pass-failed)
endif()
# Loops of square roots in vectors, which would change no result, only errno and fenv.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/draw.c PROPERTIES COMPILE_OPTIONS
                            "-O3;-fno-math-errno;-fno-trapping-math")
add_compile_definitions(_GNU_SOURCE)

if(TUTTI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined
                      -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TUTTI_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TUTTI_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT TUTTI_SANITIZE STREQUAL "")
  message(FATAL_ERROR "TUTTI_SANITIZE is '${TUTTI_SANITIZE}': want empty, address or thread")
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
  tutti_flag(-ftrivial-auto-var-init=zero)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(NOT TUTTI_SANITIZE STREQUAL "")
  tutti_flag(-Wno-maybe-uninitialized) # the release build judges; here it sees the checks' own code
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
