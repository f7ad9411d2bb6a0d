# A kernel is written once, in x_kernels.c, and compiled once per instruction set, each time with
# that set's flags and SONDE__ISA defined as its name (src/core/base/isa.h).
set(SONDE_ISAS generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND SONDE_ISAS avx2 avx512)
endif()

# -ffp-contract=fast there only: every kernel of one ISA contracts alike, so bits agree.
set(SONDE_FLAGS_generic -ffp-contract=fast)
set(SONDE_FLAGS_avx2 -mavx2 -mfma -mf16c -ffp-contract=fast)
set(SONDE_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c
    -mprefer-vector-width=512 -ffp-contract=fast)

# Kernels are unrolled by the hundred; with UBSan clang needs minutes a file, and with
# AddressSanitizer's checks written in line it needs one. They have ASan by calls, and tests
# with guard pages and poisoned memory.
set(SONDE_KERNEL_FLAGS)
if(SONDE_SANITIZE MATCHES "undefined")
  list(APPEND SONDE_KERNEL_FLAGS -fno-sanitize=undefined)
endif()
if(SONDE_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
  list(APPEND SONDE_KERNEL_FLAGS "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
endif()

# Interface libraries, so that these flags follow those of sonde_flags, whose -ffp-contract=off
# they override: a target's own options would come first.
foreach(isa ${SONDE_ISAS})
  add_library(sonde_isa_${isa} INTERFACE)
  target_compile_options(sonde_isa_${isa} INTERFACE ${SONDE_FLAGS_${isa}} ${SONDE_KERNEL_FLAGS})
  target_compile_definitions(sonde_isa_${isa} INTERFACE SONDE__ISA=${isa})
endforeach()

# sonde_split_kernels(KERNELS PLAIN source...): the sources that are kernels, and the others.
function(sonde_split_kernels kernels plain)
  set(others ${ARGN})
  set(found ${ARGN})
  list(FILTER found INCLUDE REGEX "_kernels\\.c$")
  list(FILTER others EXCLUDE REGEX "_kernels\\.c$")
  set(${kernels} ${found} PARENT_SCOPE)
  set(${plain} ${others} PARENT_SCOPE)
endfunction()

# sonde_kernel_objects(VARIABLE target source...): kernel sources, compiled with the include folders
# of a target that exists; VARIABLE is set to their objects.
function(sonde_kernel_objects variable target)
  set(objects)
  if(ARGN)
    foreach(isa ${SONDE_ISAS})
      add_library(${target}_${isa} OBJECT ${ARGN})
      target_include_directories(${target}_${isa} PRIVATE
        $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
      target_link_libraries(${target}_${isa} PRIVATE sonde_flags sonde_isa_${isa})
      list(APPEND objects $<TARGET_OBJECTS:${target}_${isa}>)
    endforeach()
  endif()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# sonde_add_kernels(target source...): adds kernel sources to a program.
function(sonde_add_kernels target)
  sonde_kernel_objects(objects ${target} ${ARGN})
  target_sources(${target} PRIVATE ${objects})
endfunction()
