/* gnulib's tests include a configuration header first; the tests used here need nothing of it. */
