# The CUDA backend, a module of its own: build/tutti-cuda.so.  The program needs no CUDA.
#
# The toolkit's nvcc and headers build it; cublasLt, cuDNN and NCCL are looked for when it runs, in
# the toolkit, in Python's nvidia/* wheels and where the loader looks, and only their headers here.
# NCCL's header is not needed.  What is found is told, and what is off without it.
#
# Kernels take minutes to compile, so without a GPU (AUTO) they are built only when somebody asks for
# the target tutti_cuda; with TUTTI_WITH_CUDA=ON always, as on a host that builds for others.
set(TUTTI_WITH_CUDA AUTO CACHE STRING "AUTO, ON or OFF: the CUDA backend")
set(TUTTI_CUDA_ARCHS "80-real;90-real;90-virtual" CACHE STRING "compute capabilities to build for")
set(TUTTI_HAVE_CUDA 0)
set(TUTTI_BUILDS_CUDA 0)
set(TUTTI_HAVE_CUDNN 0)

# Folders of Python's wheels that may hold include/ and lib/: .../site-packages/nvidia/*.
function(tutti_nvidia_wheels out)
  find_program(TUTTI_PYTHON NAMES python3)
  set(${out} "" PARENT_SCOPE)
  if(TUTTI_PYTHON)
    execute_process(COMMAND ${TUTTI_PYTHON} -c "import glob, sys
print(';'.join(sorted(sum((glob.glob(p + '/nvidia/*') for p in sys.path if p), []))))"
                    OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(${out} "${folders}" PARENT_SCOPE)
  endif()
endfunction()

# Sets out to a sign of an NVIDIA GPU; "": there is none.
function(tutti_find_gpu out)
  set(device /dev/nvidiactl)
  if(DEFINED ENV{TUTTI_NVIDIA_DEVICE})
    set(device $ENV{TUTTI_NVIDIA_DEVICE})
  endif()
  set(${out} "" PARENT_SCOPE)
  if(EXISTS ${device})
    set(${out} ${device} PARENT_SCOPE)
  elseif(NOT DEFINED ENV{TUTTI_NVIDIA_DEVICE})
    file(GLOB gpus /proc/driver/nvidia/gpus/*)
    find_program(TUTTI_NVIDIA_SMI nvidia-smi)
    if(NOT gpus AND TUTTI_NVIDIA_SMI)
      execute_process(COMMAND ${TUTTI_NVIDIA_SMI} -L OUTPUT_VARIABLE gpus ERROR_QUIET TIMEOUT 20)
      string(REGEX MATCH "GPU [0-9]+:" gpus "${gpus}")
    endif()
    set(${out} "${gpus}" PARENT_SCOPE)
  endif()
endfunction()

# Sets TUTTI_NVCC: of the toolkit that the environment names, on PATH, or of a wheel, in this order.
function(tutti_find_nvcc wheels)
  set(default /usr/local/cuda)
  if(DEFINED ENV{TUTTI_CUDA_DEFAULT})
    set(default $ENV{TUTTI_CUDA_DEFAULT})
  endif()
  set(bins "")
  foreach(wheel ${wheels})
    list(APPEND bins ${wheel}/bin)
  endforeach()
  find_program(TUTTI_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin ${default}/bin
               PATHS ${bins})
endfunction()

# One line: what was found where, or what is off without it.
function(tutti_tell_cuda what where without)
  if(where)
    message(STATUS "CUDA: ${what}: ${where}")
  else()
    message(STATUS "CUDA: ${what}: not found: ${without}")
  endif()
endfunction()

# Without any of these the module is not built.
function(tutti_tell_needed)
  set(off "the CUDA module is not built")
  tutti_tell_cuda("nvcc" "${TUTTI_NVCC}" "${off}; looked on PATH, in CUDA_HOME, CUDA_PATH,\
 /usr/local/cuda and the nvidia wheels of ${TUTTI_PYTHON}")
  if(TUTTI_NVCC)
    tutti_tell_cuda("cuda_runtime_api.h" "${TUTTI_CUDART_INCLUDE}" "${off}; its wheel:\
 nvidia-cuda-runtime")
    tutti_tell_cuda("libcudart_static.a" "${TUTTI_CUDART}" "${off}; its wheel: nvidia-cuda-runtime")
    tutti_tell_cuda("cublasLt.h" "${TUTTI_CUBLASLT_INCLUDE}" "${off}; its wheel: nvidia-cublas")
  endif()
endfunction()

function(tutti_tell_useful)
  tutti_tell_cuda("cudnn.h" "${TUTTI_CUDNN_INCLUDE}" "no cuDNN; own kernels for convolutions and\
 attention, which are slower")
  tutti_tell_cuda("NCCL (when it runs; no header needed)" "${TUTTI_NCCL}" "looked for again when it\
 runs; without it GPUs add over each other's memory, or through the host")
endfunction()

function(tutti_find_cuda)
  if(TUTTI_WITH_CUDA STREQUAL "OFF" OR TUTTI_FUZZ OR NOT TUTTI_SANITIZE STREQUAL "")
    set(why "TUTTI_WITH_CUDA is OFF")
    if(NOT TUTTI_WITH_CUDA STREQUAL "OFF")
      set(why "not with a sanitizer or fuzzing")
    endif()
    message(STATUS "CUDA: not built: ${why}")
    set(TUTTI_CUDA_WHY "${why}" PARENT_SCOPE)
    return()
  endif()
  tutti_nvidia_wheels(wheels)
  tutti_find_nvcc("${wheels}")
  if(NOT TUTTI_NVCC)
    tutti_tell_needed()
    set(TUTTI_CUDA_WHY "no nvcc: put it on PATH, set CUDA_HOME, or pip install nvidia-cuda-nvcc"
        PARENT_SCOPE)
    return()
  endif()
  get_filename_component(nvcc ${TUTTI_NVCC} REALPATH)
  get_filename_component(toolkit ${nvcc}/../.. ABSOLUTE)
  set(hints ${toolkit} ${toolkit}/targets/x86_64-linux ${wheels})
  find_path(TUTTI_CUDART_INCLUDE cuda_runtime_api.h HINTS ${hints} PATH_SUFFIXES include)
  find_path(TUTTI_CUBLASLT_INCLUDE cublasLt.h HINTS ${hints} PATH_SUFFIXES include)
  find_path(TUTTI_CUDNN_INCLUDE cudnn.h HINTS ${hints} PATH_SUFFIXES include)
  find_library(TUTTI_CUDART NAMES cudart_static libcudart_static.a HINTS ${hints}
               PATH_SUFFIXES lib lib64 lib/stubs)
  find_file(TUTTI_NCCL libnccl.so.2 HINTS ${hints} PATHS /usr/lib/x86_64-linux-gnu /usr/lib64
            /usr/lib PATH_SUFFIXES lib lib64)
  tutti_tell_needed()
  foreach(part CUDART_INCLUDE CUBLASLT_INCLUDE CUDART)
    if(NOT TUTTI_${part})
      set(TUTTI_CUDA_WHY "nvcc is there, but not what TUTTI_${part} names" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  tutti_tell_useful()
  tutti_find_gpu(gpu)
  if(gpu OR TUTTI_WITH_CUDA STREQUAL "ON")
    set(TUTTI_BUILDS_CUDA 1 PARENT_SCOPE)
  else()
    message(STATUS "CUDA: no NVIDIA GPU here: the CUDA module is not built; -DTUTTI_WITH_CUDA=ON\
 builds it anyway")
  endif()
  set(folders "")
  foreach(hint ${hints})
    foreach(suffix lib lib64)
      if(IS_DIRECTORY ${hint}/${suffix})
        list(APPEND folders ${hint}/${suffix})
      endif()
    endforeach()
  endforeach()
  if(TUTTI_WHEEL) # tutti/lib/tutti-cuda.so beside the packages nvidia-*; the loader knows $ORIGIN
    set(folders "")
    foreach(package cu13 cudnn nccl)
      list(APPEND folders "$ORIGIN/../../nvidia/${package}/lib")
    endforeach()
  endif()
  list(JOIN folders ":" folders)
  set(TUTTI_CUDA_FOLDERS "${folders}" PARENT_SCOPE)
  set(TUTTI_HAVE_CUDA 1 PARENT_SCOPE)
  if(TUTTI_CUDNN_INCLUDE)
    set(TUTTI_HAVE_CUDNN 1 PARENT_SCOPE)
  endif()
endfunction()

tutti_find_cuda()
if(TUTTI_WITH_CUDA STREQUAL "ON" AND NOT TUTTI_HAVE_CUDA)
  message(FATAL_ERROR "CUDA was asked for and not found: ${TUTTI_CUDA_WHY}")
endif()

# Where module_file.c finds what `cmake --install` put into LIBDIR/tutti.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/files/module_file.c PROPERTIES COMPILE_DEFINITIONS
  "TUTTI_MODULE_FROM_BIN=\"../${CMAKE_INSTALL_LIBDIR}/tutti\";\
TUTTI_MODULE_DIR=\"${CMAKE_INSTALL_FULL_LIBDIR}/tutti\"")

# Kernels by nvcc itself, file by file: CMake's own CUDA language would have to link a program on
# every configure, and finds no toolkit that came as wheels.
function(tutti_cuda_objects out)
  set(codes "")
  foreach(arch ${TUTTI_CUDA_ARCHS})
    string(REGEX REPLACE "-.*" "" number ${arch})
    if(arch MATCHES "virtual")
      list(APPEND codes -gencode=arch=compute_${number},code=compute_${number})
    else()
      list(APPEND codes -gencode=arch=compute_${number},code=sm_${number})
    endif()
  endforeach()
  set(launcher "")
  if(CMAKE_C_COMPILER_LAUNCHER)
    set(launcher ${CMAKE_C_COMPILER_LAUNCHER})
  endif()
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
  set(objects "")
  foreach(kernel ${kernels})
    get_filename_component(name ${kernel} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.cu.o)
    set(own_codes ${codes})
    if(name MATCHES "^(wgmma|attention_grad|conv_point)$") # Hopper's tensor cores are a feature of 9.0 alone
      string(REPLACE "compute_90,code=sm_90" "compute_90a,code=sm_90a" own_codes "${codes}")
      if(own_codes MATCHES "sm_90a")
        list(APPEND own_codes -DTTI_HAVE_WGMMA)
      endif()
    endif()
    set(flags "")
    if(name MATCHES "^((peers_)?update|draw|random)$") # the bits of the host, where nothing is contracted either
      set(flags -fmad=false)
    endif()
    add_custom_command(OUTPUT ${object} DEPFILE ${object}.d DEPENDS ${kernel} VERBATIM
      COMMAND ${launcher} ${TUTTI_NVCC} -std=c++17 -O3 --expt-relaxed-constexpr -lineinfo ${own_codes} ${flags}
              -Xcompiler -fPIC,-fvisibility=hidden,-Wall -I ${CMAKE_SOURCE_DIR}/src
              -I ${CMAKE_SOURCE_DIR}/include -MD -MF ${object}.d -c ${kernel} -o ${object}
      COMMENT "Building CUDA kernels ${name}")
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

function(tutti_cuda_module)
  if(NOT TUTTI_HAVE_CUDA)
    return()
  endif()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.c)
  list(APPEND sources ${CMAKE_SOURCE_DIR}/src/backend/peer_hosts.c)
  tutti_cuda_objects(objects)
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  # An archive, of which the module takes what it calls: no reader of jobs, so no library for it.
  add_library(tutti_cuda_ops STATIC EXCLUDE_FROM_ALL ${TUTTI_OBJECTS_ops})
  add_library(tutti_cuda MODULE ${sources} ${objects})
  set_target_properties(tutti_cuda PROPERTIES PREFIX "" OUTPUT_NAME tutti-cuda LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(tutti_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(tutti_cuda SYSTEM PRIVATE ${TUTTI_CUDART_INCLUDE}
                             ${TUTTI_CUBLASLT_INCLUDE})
  if(TUTTI_HAVE_CUDNN)
    target_include_directories(tutti_cuda SYSTEM PRIVATE ${TUTTI_CUDNN_INCLUDE})
  endif()
  list(JOIN TUTTI_CUDA_ARCHS "," archs)
  target_compile_definitions(tutti_cuda PRIVATE TUTTI_VERSION="${PROJECT_VERSION}"
                             TUTTI_HAVE_CUDNN=${TUTTI_HAVE_CUDNN}
                             TUTTI_CUDA_ARCHS="${archs}"
                             TUTTI_CUDA_FOLDERS="${TUTTI_CUDA_FOLDERS}")
  target_link_libraries(tutti_cuda PRIVATE tutti_cuda_ops ${TUTTI_CUDART} ${TUTTI_LIBS_ops} stdc++
                        rt dl m)
  target_link_options(tutti_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined -Wl,--as-needed)
  if(NOT TUTTI_BUILDS_CUDA)
    set_target_properties(tutti_cuda PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  install(TARGETS tutti_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti OPTIONAL)
endfunction()
