# Runs PROGRAM with one seed under LIBRARY and under the system's malloc; the requests must be the
# same ones.
set(arguments --seed 1 --threads 1 --operations 40000)
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${LIBRARY} ${PROGRAM} ${arguments}
  OUTPUT_VARIABLE first COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} ${arguments} OUTPUT_VARIABLE second COMMAND_ERROR_IS_FATAL ANY)
foreach(run first second)
  string(REGEX MATCH "digest [0-9a-f]+" ${run} "${${run}}")
endforeach()
if(NOT first OR NOT first STREQUAL second)
  message(FATAL_ERROR "the same seed made different requests: '${first}' and '${second}'")
endif()
message("${first}, twice")
