// The work that a process does once: the handlers of fork, the key of threads, the end.
#pragma once

// Called in the first process of a recording; children inherit the result.
void start_once(void);
