# A kernel is written once, in x_kernels.c, and compiled once per instruction set, each time with
# that set's flags and SONDE__ISA defined as its name (src/core/base/isa.h).
set(SONDE_ISAS generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND SONDE_ISAS avx2 avx512)
endif()

# Sanitizer builds instrument the kernels of two sets: generic, and the best that this processor
# runs. A third set, and with ThreadSanitizer all three, are the objects of build/release: threads
# share work outside of the kernels, which know operands only, and tests with guard pages and
# poisoned memory run every set of the release build.
set(SONDE_RELEASE_ISAS)
if(SONDE_SANITIZE AND SONDE_ISAS MATCHES "avx2")
  set(SONDE_RELEASE_ISAS ${SONDE_ISAS})
  if(NOT SONDE_SANITIZE MATCHES "thread")
    file(STRINGS /proc/cpuinfo processor REGEX "^flags" LIMIT_COUNT 1)
    set(best avx2)
    if(processor MATCHES "avx512f" AND processor MATCHES "avx512bw" AND processor MATCHES "avx512dq" AND
       processor MATCHES "avx512vl")
      set(best avx512)
    endif()
    list(REMOVE_ITEM SONDE_RELEASE_ISAS generic ${best})
  endif()
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS release=1)
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

# sonde_release_kernels(VARIABLE target isa source...): the kernels of one set as build/release has
# them, built there. One such build runs at a time. VARIABLE is set to their objects.
function(sonde_release_kernels variable target isa)
  set(objects)
  foreach(source ${ARGN})
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    list(APPEND objects ${CMAKE_SOURCE_DIR}/build/release/CMakeFiles/${target}_${isa}.dir/${name}.o)
  endforeach()
  add_custom_target(${target}_${isa} COMMAND ${CMAKE_SOURCE_DIR}/tools/build release ${target}_${isa}
    BYPRODUCTS ${objects} JOB_POOL release VERBATIM)
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_dependencies(${target} ${target}_${isa})
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# sonde_kernel_objects(VARIABLE target source...): kernel sources, compiled with the include folders
# of a target that exists; VARIABLE is set to their objects.
function(sonde_kernel_objects variable target)
  set(objects)
  if(ARGN)
    foreach(isa ${SONDE_ISAS})
      if(isa IN_LIST SONDE_RELEASE_ISAS)
        sonde_release_kernels(compiled ${target} ${isa} ${ARGN})
        list(APPEND objects ${compiled})
        continue()
      endif()
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
