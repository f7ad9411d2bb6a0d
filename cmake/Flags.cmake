# Warnings, sanitizers and the per-ISA flags, for every target.
add_library(sonde_flags INTERFACE)
target_include_directories(sonde_flags INTERFACE ${CMAKE_BINARY_DIR}/generated)
target_compile_options(sonde_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wdouble-promotion
  -Wcast-qual -Wcast-align -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes
  -Wredundant-decls -Wpointer-arith -Wundef -Wvla -Wformat=2 -Wswitch-enum
  -Wnull-dereference -Wimplicit-fallthrough -fno-common -ffp-contract=off)

# Warnings are errors for the compilers whose warnings we know; a newer one may warn of what
# nobody has seen yet, and that must not stop a user's build.
set(SONDE_KNOWN_GNU 13)
set(SONDE_KNOWN_Clang 15)
# What clang alone warns of: INFINITY in double expressions, long strings in arrays, gcc pragmas,
# rows of tables whose last fields are left 0.
target_compile_options(sonde_flags INTERFACE $<$<C_COMPILER_ID:Clang>:-Wno-double-promotion$<SEMICOLON>-Wno-string-concatenation$<SEMICOLON>-Wno-unknown-pragmas$<SEMICOLON>-Wno-missing-field-initializers>)
if(SONDE_WERROR)
  if(DEFINED SONDE_KNOWN_${CMAKE_C_COMPILER_ID} AND
     CMAKE_C_COMPILER_VERSION VERSION_LESS SONDE_KNOWN_${CMAKE_C_COMPILER_ID})
    target_compile_options(sonde_flags INTERFACE -Werror)
  else()
    message(STATUS "warnings stay warnings: ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION} is newer than what is known here")
  endif()
endif()

# A package has no path of the machine that built it: assertions name their files from here.
if(SKBUILD OR SONDE_PACKAGE)
  target_compile_options(sonde_flags INTERFACE -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
    -ffile-prefix-map=${CMAKE_BINARY_DIR}=.)
endif()

# Neither build type defines NDEBUG: an assertion is cheap beside what it guards.
set(CMAKE_C_FLAGS_RELEASE "-O3")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(SONDE_SANITIZE)
  target_compile_options(sonde_flags INTERFACE -fsanitize=${SONDE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sonde_flags INTERFACE -fsanitize=${SONDE_SANITIZE})
  if(SONDE_SANITIZE MATCHES "undefined")
    target_compile_options(sonde_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(SONDE_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "SONDE_FUZZ needs clang, which has libFuzzer: use the preset fuzz")
  endif()
  target_compile_options(sonde_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SONDE_STRESS)
  target_compile_definitions(sonde_flags INTERFACE SONDE_STRESS=1)
endif()
target_compile_definitions(sonde_flags INTERFACE _GNU_SOURCE)
