# Runs PROGRAM under LIBRARY, an allocator with a known fault: it must say that it failed.
# It ends at the first sign, so many operations cost nothing but where a fault shows by chance only.
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${LIBRARY}
                        ${PROGRAM} --seed 1 --operations 2000000
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(result EQUAL 0 OR NOT output MATCHES "stress: FAILED: ([^\n]*)")
  message(FATAL_ERROR "the fault went unnoticed (status ${result}): ${output}")
endif()
message("noticed: ${CMAKE_MATCH_1}")
