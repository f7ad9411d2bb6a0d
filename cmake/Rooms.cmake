# sonde_sources(VARIABLE room...): all *.c in src/<room>.
function(sonde_sources variable)
  set(sources)
  foreach(room ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
    list(APPEND sources ${found})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# sonde_parts(NAME source...): the objects of a library, compiled once: NAME_objects, and
# NAME_objects_<isa> of its kernels. OBJECTS_OF_<NAME> is set to all of them.
function(sonde_parts name)
  sonde_split_kernels(kernels sources ${ARGN})
  add_library(${name}_objects OBJECT ${sources})
  target_include_directories(${name}_objects PUBLIC ${CMAKE_SOURCE_DIR}/include
    PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/core)
  target_link_libraries(${name}_objects PRIVATE sonde_flags)
  sonde_kernel_objects(compiled ${name}_objects ${kernels})
  set(OBJECTS_OF_${name} $<TARGET_OBJECTS:${name}_objects> ${compiled} PARENT_SCOPE)
endfunction()

# sonde_shared(TARGET PREFIXES object...): a shared library of objects, which exports the names
# that begin so.
function(sonde_shared target prefixes)
  list(TRANSFORM prefixes APPEND ";" OUTPUT_VARIABLE EXPORTED)
  string(REPLACE ";;" "; " EXPORTED "${EXPORTED}")
  set(map ${CMAKE_BINARY_DIR}/${target}.map)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/exports.map.in ${map} @ONLY)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:sonde_flags>)
  # Calls within a library go straight to their function, not through the table of symbols.
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,-Bsymbolic-functions
    -Wl,--version-script=${map})
  if(NOT SONDE_SANITIZE) # clang leaves its sanitizers' symbols to the program
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION 0
    LINK_DEPENDS ${map} INSTALL_RPATH "$ORIGIN")
endfunction()

# sonde_library(NAME EXPORTS prefix... OBJECTS object... LINKS library... USES library...): a library,
# which exports its public names, those that begin with a prefix and "_"; and NAME_private, the same
# objects with all their names visible, in lib/private, for tests and benchmarks. USES are Sonde's
# libraries that its headers need.
function(sonde_library name)
  cmake_parse_arguments(PARSE_ARGV 1 library "" "" "EXPORTS;OBJECTS;LINKS;USES")
  list(TRANSFORM library_EXPORTS APPEND "_[a-z]*")
  sonde_shared(${name} "${library_EXPORTS}" ${library_OBJECTS})
  target_link_libraries(${name} PUBLIC ${library_USES} PRIVATE ${library_LINKS})
  add_library(sonde::${name} ALIAS ${name})
  set_property(GLOBAL APPEND PROPERTY SONDE_LIBRARIES ${name})

  sonde_shared(${name}_private "sonde_*" ${library_OBJECTS})
  list(TRANSFORM library_USES APPEND _private)
  target_link_libraries(${name}_private PUBLIC ${library_USES} PRIVATE ${library_LINKS})
  set_target_properties(${name}_private PROPERTIES EXCLUDE_FROM_ALL ON OUTPUT_NAME ${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/private)
endfunction()

# sonde_builtin_rules(TARGET): the table of built-in rules, by name, from their definitions
# `const sonde_rule sonde__builtin_<name> = {` in src/core/rules/builtin/rule_*.c.
function(sonde_builtin_rules target)
  file(GLOB families CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/core/rules/builtin/rule_*.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${families})
  set(rules)
  foreach(family ${families})
    file(STRINGS ${family} definitions REGEX "^const sonde_rule sonde__builtin_[a-z0-9_]+ = ")
    foreach(definition ${definitions})
      string(REGEX REPLACE "^const sonde_rule (sonde__builtin_[a-z0-9_]+) = .*" "\\1" rule ${definition})
      list(APPEND rules ${rule})
    endforeach()
  endforeach()
  list(SORT rules)
  set(declarations)
  set(rows)
  foreach(rule ${rules})
    string(APPEND declarations "extern const sonde_rule ${rule};\n")
    string(APPEND rows "    &${rule},\n")
  endforeach()
  set(table ${CMAKE_BINARY_DIR}/builtin_table.c)
  file(CONFIGURE OUTPUT ${table} CONTENT "#include \"rules/engine.h\"\n\n${declarations}
const sonde_rule *const sonde__rule_builtins[] = {\n${rows}    NULL,\n};\n" @ONLY)
  target_sources(${target} PRIVATE ${table})
endfunction()

# sonde_op_kinds(TARGET): the list of op kinds, sonde__op_kinds, and the header op_kinds.h that
# declares them, from the definitions
# `SONDE__OP(<name>,` in src/nn/ops/*.c, and the list of layers,
# sonde__op_layers, from `SONDE__LAYER(<name>,`. A line
# `SONDE__POINTWISE(<name>,` is a row of a table and defines sonde__op_<name>,
# sonde__op_<name>_grad and sonde__layer_<name>; `SONDE__PAIRWISE(<name>,` is one with _grad_a and _grad_b.
function(sonde_op_kinds target)
  file(GLOB families CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/nn/ops/*.c)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${families})
  set(externs)
  set(rows)
  set(layers)
  foreach(family ${families})
    file(READ ${family} text)
    string(REGEX MATCHALL "\nSONDE__OP\\([ \n]*[a-z0-9_]+," definitions "${text}")
    foreach(definition ${definitions})
      string(REGEX REPLACE ".*[( ]([a-z0-9_]+),$" "sonde__op_\\1" kind "${definition}")
      string(APPEND externs "extern const sonde__op_kind ${kind};\n")
      string(APPEND rows "    &${kind},\n")
    endforeach()
    string(REGEX MATCHALL "\nSONDE__LAYER\\([ \n]*[a-z0-9_]+,|\nconst sonde__op_layer sonde__layer_[a-z0-9_]+ =" definitions "${text}")
    foreach(definition ${definitions})
      string(REGEX REPLACE ".*[( ](sonde__layer_)?([a-z0-9_]+)(,| =)$" "sonde__layer_\\2" layer "${definition}")
      string(APPEND externs "extern const sonde__op_layer ${layer};\n")
      string(APPEND layers "    &${layer},\n")
    endforeach()
    file(STRINGS ${family} definitions REGEX "^SONDE__PAIRWISE\\([a-z0-9_]+,")
    foreach(definition ${definitions})
      string(REGEX REPLACE "^SONDE__PAIRWISE\\(([a-z0-9_]+),.*" "\\1" name "${definition}")
      string(APPEND externs "extern const sonde__op_kind sonde__op_${name}, sonde__op_${name}_grad_a, sonde__op_${name}_grad_b;\n"
             "extern const sonde__op_layer sonde__layer_${name};\n")
      string(APPEND rows "    &sonde__op_${name},\n    &sonde__op_${name}_grad_a,\n    &sonde__op_${name}_grad_b,\n")
      string(APPEND layers "    &sonde__layer_${name},\n")
    endforeach()
    file(STRINGS ${family} definitions REGEX "^SONDE__POINTWISE(_WITH)?\\([a-z0-9_]+,")
    foreach(definition ${definitions})
      string(REGEX REPLACE "^SONDE__POINTWISE(_WITH)?\\(([a-z0-9_]+),.*" "\\2" name "${definition}")
      string(APPEND externs "extern const sonde__op_kind sonde__op_${name}, sonde__op_${name}_grad;\n"
             "extern const sonde__op_layer sonde__layer_${name};\n")
      string(APPEND rows "    &sonde__op_${name},\n    &sonde__op_${name}_grad,\n")
      string(APPEND layers "    &sonde__layer_${name},\n")
    endforeach()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/op_kinds.h CONTENT "${externs}" @ONLY)
  set(table ${CMAKE_BINARY_DIR}/op_kinds.c)
  file(CONFIGURE OUTPUT ${table} CONTENT "#include \"nn/ops/layer_row.h\"\n\nconst sonde__op_kind *const sonde__op_kinds[] = {\n${rows}    NULL,\n};\nconst sonde__op_layer *const sonde__op_layers[] = {\n${layers}    NULL,\n};\n" @ONLY)
  target_sources(${target} PRIVATE ${table})
endfunction()
