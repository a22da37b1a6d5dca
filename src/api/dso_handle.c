/* In libloam.so only, which is linked without the compiler's start files: those cost every
 * program's start a call, three look-ups in vain and a relocation, for destructors and transactions
 * that C++ without its library does not have. What pthread_atfork() asks of them is an address by
 * which the library is known; a pointer's, for code of the C library's may be linked that counts on
 * the alignment (aarch64). */
__attribute__((visibility("hidden"))) extern void* const __dso_handle;
void* const __dso_handle = 0;
