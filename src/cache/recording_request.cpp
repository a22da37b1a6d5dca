#include "cache/recording_request.h"

namespace loam {

constinit RecordingRequest recording_request{};

}  // namespace loam
