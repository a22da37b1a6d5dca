-- Which sizes of blocks hold the memory when most bytes live, and in which program?
SELECT up_to, program,
  sum(peak_bytes) AS bytes,
  sum(peak_blocks) AS blocks,
  CAST(sum(peak_bytes) AS DOUBLE) / sum(sum(peak_bytes)) OVER () AS share
FROM sizes
GROUP BY up_to, program
ORDER BY bytes DESC, up_to, program
LIMIT 20
