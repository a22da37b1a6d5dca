#include "observers/recording_request.h"

namespace loam {

constinit RecordingRequest recording_request{};

}  // namespace loam
