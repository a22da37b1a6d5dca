/* In libloam.so only, which is linked without the compiler's start files. Those cost every
 * program's start a call, three failing look-ups and a relocation, for destructors and transactions
 * that C++ without its library does not have. pthread_atfork() needs one symbol of them: an address
 * by which it identifies the library. It is a pointer's address, because linked code of the C
 * library may rely on the alignment (aarch64). */
__attribute__((visibility("hidden"))) extern void* const __dso_handle;
void* const __dso_handle = 0;

#if defined(__aarch64__)
// libgcc's atomics ask the C library by this name of glibc's which instructions the processor has.
// musl lacks the name, and would end every program that preloads the library for glibc.
unsigned long getauxval(unsigned long);
__attribute__((visibility("hidden"))) unsigned long __getauxval(unsigned long type);
unsigned long __getauxval(unsigned long type) { return getauxval(type); }
#endif
