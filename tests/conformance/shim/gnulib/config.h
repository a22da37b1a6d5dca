/* gnulib's tests include a configuration header first. The tests used here need no part of it. */
