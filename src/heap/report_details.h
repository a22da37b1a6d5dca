// Describes an address for reports: the class and heap of its block, and the thread that freed it.
#pragma once

namespace loam {

/// ", class 48, heap default, thread 17; freed by thread 17 at prog+0x1234". Answers any value,
/// takes no lock.
void describe_for_report(class ReportLine& line, const void* address);

}  // namespace loam
