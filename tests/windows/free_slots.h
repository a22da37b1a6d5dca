// Counts the thread slots that the system has left.
#pragma once

#include <windows.h>

// Takes all slots for a moment. No other thread may start, end or take one meanwhile.
inline DWORD free_slots() {
  static DWORD slots[2000];
  DWORD count = 0;
  while (count < 2000 && (slots[count] = TlsAlloc()) != TLS_OUT_OF_INDEXES) ++count;
  for (DWORD i = 0; i < count; ++i) TlsFree(slots[i]);
  return count;
}
