"""Overlap of communication and computation in traces of the PyTorch profiler, Nsight Systems and ROCm.

events, databases        the events of a trace: JSON, streamed; SQLite
kernels, trace           kernels that communicate; the GPU work
intervals, exposed       exposed communication, overlap and idle time, exactly; waiting and moving, by a recording
report                   all that as text and JSON, and the wire in the trace
"""
