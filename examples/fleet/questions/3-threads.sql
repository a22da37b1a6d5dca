-- Which threads ask for most, and which free what other threads were handed?
--
-- Thread 0 is the first one of its process; threads are numbered as they began.
SELECT program, thread,
  count(*) AS processes,
  sum(allocated_bytes) AS allocated_bytes,
  sum(allocations) AS allocations,
  sum(frees) AS frees,
  sum(frees_of_others) AS frees_of_others
FROM threads
GROUP BY program, thread
ORDER BY allocated_bytes DESC, program, thread
LIMIT 20
