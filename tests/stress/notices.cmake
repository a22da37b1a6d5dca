# Runs PROGRAM under LIBRARY, an allocator with a known fault. The program must report a failure. It
# ends at the first sign, so many operations are cheap unless chance decides whether a fault shows.
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${LIBRARY}
                        ${PROGRAM} --seed 1 --operations 2000000
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(result EQUAL 0 OR NOT output MATCHES "stress: FAILED: ([^\n]*)")
  message(FATAL_ERROR "the fault went unnoticed (status ${result}): ${output}")
endif()
message("noticed: ${CMAKE_MATCH_1}")
