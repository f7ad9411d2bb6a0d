# sonde_library(NAME room...): a shared library of all *.c in src/<room>, its symbols hidden but
# for those of cmake/exports.map; nothing if its rooms are empty.
function(sonde_library name)
  set(sources)
  foreach(room ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND sources ${found})
  endforeach()
  foreach(isa generic avx2 avx512)
    foreach(source ${sources})
      if(source MATCHES "_${isa}\\.c$")
        if(NOT isa STREQUAL "generic" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
          list(REMOVE_ITEM sources ${source})
        else()
          set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${SONDE_FLAGS_${isa}}")
        endif()
      endif()
    endforeach()
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(${name} SHARED ${sources})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:sonde_flags>)
  add_library(sonde::${name} ALIAS ${name})
  target_link_options(${name} PRIVATE -Wl,--as-needed
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
  if(NOT SONDE_SANITIZE) # clang leaves its sanitizers' symbols to the program
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map INSTALL_RPATH "$ORIGIN")
  set_property(GLOBAL APPEND PROPERTY SONDE_LIBRARIES ${name})
endfunction()
