#pragma once

/// How often a replaced call allocated; -1 after abort().
extern long intruder_calls;
