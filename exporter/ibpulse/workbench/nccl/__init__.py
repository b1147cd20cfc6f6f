"""Results of communication benchmarks: read from their files, compared with the hardware and with a recording.

results               one result, and all results of a file, in SI units; bounded reading
nccl_tests, formats   nccl-tests; rccl-tests, perftest and NCCL Inspector, and the choice of the reader
wire                  bytes that a node sends per operation, and what headers and protocols add
grades                the bound of the bottleneck tier, the grade of a result, and suspect rails
trains                the trains of a run found in a recording, by bytes and order
report                the comparison as text and JSON

No module keeps environment variables, arguments, host names or process ids of a file.
"""
