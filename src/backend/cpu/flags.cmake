# The vector files are compiled once for each instruction set; the best one is selected at run time.
# The bits are the same for all: no contraction (cmake/flags.cmake), fixed order of sums.
set(TUTTI_CPU_VECTOR "")
foreach(name fused isa optim random gemm/gemm gemm/grouped gemm/matmul gemm/tile_product
        image/conv image/pool image/resample loss/counts loss/loss loss/pair_loss math/activation math/along math/binary
        math/elementwise math/reduce math/shape math/softmax norm/batch_norm norm/norm
        sequence/attention sequence/embed sequence/recurrent sequence/rotary sequence/sdpa)
  list(APPEND TUTTI_CPU_VECTOR ${CMAKE_SOURCE_DIR}/src/backend/cpu/${name}.c)
endforeach()
# -fno-math-errno and -fno-trapping-math change no result, only what errno and fenv would say.
set_source_files_properties(${TUTTI_CPU_VECTOR} PROPERTIES COMPILE_OPTIONS
                            "-O3;-fno-math-errno;-fno-trapping-math;-Wno-psabi;$<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>")

function(tutti_cpu_variant name)
  add_library(tutti_backend_${name} OBJECT ${TUTTI_CPU_VECTOR})
  target_compile_options(tutti_backend_${name} PRIVATE ${ARGN})
  target_compile_definitions(tutti_backend_${name} PRIVATE TTI_ISA=${name})
  target_link_libraries(tutti_backend_${name} PUBLIC tutti_backend)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  tutti_cpu_variant(avx2 -march=x86-64-v3)
  tutti_cpu_variant(avx512 -march=x86-64-v4 -mprefer-vector-width=512)
  set(TUTTI_CPU_OBJECTS $<TARGET_OBJECTS:tutti_backend_avx2> $<TARGET_OBJECTS:tutti_backend_avx512>)
else()
  set(TUTTI_CPU_OBJECTS "")
endif()

# Products on the tile unit: for processors that have it, found out at run time like the others.
set(TUTTI_AMX_FLAGS -march=x86-64-v4 -mamx-tile -mamx-bf16)
check_c_compiler_flag("${TUTTI_AMX_FLAGS}" TUTTI_HAS_AMX_FLAGS)
set(TUTTI_HAVE_AMX 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64" AND TUTTI_HAS_AMX_FLAGS)
  set(TUTTI_HAVE_AMX 1)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cpu/gemm/amx_product.c PROPERTIES COMPILE_OPTIONS
                              "-O3;${TUTTI_AMX_FLAGS};-mprefer-vector-width=512;-Wno-psabi")
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cpu/gemm/amx.c PROPERTIES COMPILE_OPTIONS -Wno-psabi)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cpu/level.c ${CMAKE_SOURCE_DIR}/src/backend/cpu/gemm/amx_product.c
                            PROPERTIES COMPILE_DEFINITIONS TTI_HAVE_AMX=${TUTTI_HAVE_AMX})

# The OpenMP run time that oneDNN is linked with: a lane sets its number of threads to one.
set(TUTTI_CPU_LIBS "")
if(TUTTI_HAVE_ONEDNN)
  set(TUTTI_CPU_LIBS gomp)
endif()
