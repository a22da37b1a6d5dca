"""The paired benchmark behind the gates: measure, keep every sample, judge, print.

allocators  who is compared            machine   what it ran on, and who else was running
trial       one process, watched       schedule  A B B A rounds, screening, discarding
ratios      paired ratios, intervals   gates     the cases, their figures and their limits
results     the JSON file              report    tables made from that file alone
programs    what others wrote, what it is given, whether it answers right
"""
