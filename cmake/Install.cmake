# What `cmake --install` puts where, and the Debian packages that `cpack` makes of it.
#
#   runtime       the libraries, the command and its pages        package sonde
#   development   headers, CMake package, pkg-config files        package sonde-dev
#
# A rule that names no component belongs to runtime.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
include(CMakePackageConfigHelpers)

# pkg-config file of one library; what it requires is what it links publicly.
function(sonde_install_pkgconfig name)
  set(PC_NAME ${name})
  set(PC_REQUIRES "")
  get_target_property(public_links ${name} INTERFACE_LINK_LIBRARIES)
  foreach(link ${public_links})
    if(TARGET ${link} AND link MATCHES "^sonde(_[a-z]+)?$" AND NOT link STREQUAL "sonde_flags")
      string(APPEND PC_REQUIRES " ${link}")
    endif()
  endforeach()
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  string(REGEX REPLACE "[^/]+" ".." PC_UP ${folder})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/library.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${folder} COMPONENT development)
endfunction()

# Call it last: it installs the libraries that exist by then.
function(sonde_install_package)
  get_property(libraries GLOBAL PROPERTY SONDE_LIBRARIES)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/sonde)
  install(TARGETS ${libraries} EXPORT sondeTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
    NAMELINK_COMPONENT development)
  foreach(library ${libraries})
    sonde_install_pkgconfig(${library})
  endforeach()
  set(left_out)
  if(NOT TARGET sonde_nn)
    set(left_out PATTERN nn EXCLUDE)
  endif()
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/sonde DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT development FILES_MATCHING PATTERN "*.h" ${left_out})
  install(EXPORT sondeTargets NAMESPACE sonde:: DESTINATION ${folder} COMPONENT development)
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/sondeConfig.cmake.in
    ${CMAKE_BINARY_DIR}/sondeConfig.cmake INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/sondeConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/sondeConfig.cmake ${CMAKE_BINARY_DIR}/sondeConfigVersion.cmake
    DESTINATION ${folder} COMPONENT development)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

  # What the command starts Python for. Not __init__.py: it needs the extension.
  set(modules ${CMAKE_SOURCE_DIR}/python/sonde)
  set(folder ${CMAKE_INSTALL_LIBDIR}/sonde/python/sonde)
  install(FILES ${modules}/command.py ${modules}/exports.py ${modules}/data.py ${modules}/tokens.py
    DESTINATION ${folder} COMPONENT runtime)
  install(DIRECTORY ${modules}/onnx DESTINATION ${folder} COMPONENT runtime
    FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)

  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "The Sonde authors")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL runtime development)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME sonde)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS python3)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME sonde-dev)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "sonde (= ${PROJECT_VERSION})")
  if(TARGET sonde_mpi) # a package of its own: it needs Open MPI
    list(APPEND CPACK_COMPONENTS_ALL mpi)
    set(CPACK_DEBIAN_MPI_PACKAGE_NAME sonde-mpi)
    set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "sonde (= ${PROJECT_VERSION})")
  endif()
  include(CPack)
endfunction()
