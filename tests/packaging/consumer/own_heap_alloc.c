/* A function that happens to be called as Windows' is: the library must not take its place. */
int HeapAlloc(int answer);

int HeapAlloc(int answer) { return answer + 1; }
