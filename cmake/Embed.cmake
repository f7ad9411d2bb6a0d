# cmake -DOUT=FILE.c -DNAME=SYMBOL -DFOLDER=F -P Embed.cmake: the *.yaml files of a folder as a C table
# {name, text}, which ends with NULLs.
file(GLOB files ${FOLDER}/*.yaml)
list(SORT files)
set(code "#include \"cli/demo.h\"\n\nconst cli_demo_file ${NAME}[] = {\n")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  string(APPEND code "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
file(WRITE ${OUT} "${code}    {0},\n};\n")
