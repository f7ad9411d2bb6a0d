# sonde_library(NAME room...): a shared library of all *.c in src/<room>, hidden by default, its
# exports listed in cmake/<NAME>.map; and NAME_static, for tests that reach inside.
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
  target_link_options(${name} PRIVATE -Wl,--no-undefined
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map)
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
