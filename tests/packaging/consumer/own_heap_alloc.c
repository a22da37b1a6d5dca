/* A function that has the name of Windows' own. The library must not replace it. */
int HeapAlloc(int answer);

int HeapAlloc(int answer) { return answer + 1; }
