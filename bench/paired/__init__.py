"""The paired benchmark behind the gates: measure, keep every sample, judge, print.

allocators  the compared allocators    machine   the machine, and other programs on it
trial       one process, watched       schedule  A B B A rounds, screening, discarding
ratios      paired ratios, intervals   gates     the cases, their figures and their limits
results     the JSON file              report    tables made from that file alone
programs    programs of other projects: their input, the check of their answers
"""
