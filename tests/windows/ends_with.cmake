# Runs PROGRAM as many times as TIMES says. Each time it must end with CODE.
foreach(time RANGE 1 ${TIMES})
  execute_process(COMMAND ${RUNNER} ${PROGRAM} RESULT_VARIABLE code TIMEOUT 60)
  if(NOT code EQUAL ${CODE})
    message(FATAL_ERROR "the program ended with ${code}, not ${CODE} (run ${time})")
  endif()
endforeach()
