# Runs PROGRAM under LIBRARY, an allocator with a known fault: it must say that it failed.
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${LIBRARY}
                        ${PROGRAM} --seed 1 --operations 100000
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(result EQUAL 0 OR NOT output MATCHES "stress: FAILED: ([^\n]*)")
  message(FATAL_ERROR "the fault went unnoticed (status ${result}): ${output}")
endif()
message("noticed: ${CMAKE_MATCH_1}")
