// <gtest/gtest.h> for systems on which a process that abort() ends has an exit code.
#pragma once

#include_next <gtest/gtest.h>

namespace testing {
inline ExitedWithCode KilledBySignal(int) { return ExitedWithCode(3); }
}  // namespace testing
