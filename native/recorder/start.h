// The work that is done once in a process: the handlers of fork, the key of threads, the end.
#pragma once

// The first process of a recording; children inherit it.
void start_once(void);
