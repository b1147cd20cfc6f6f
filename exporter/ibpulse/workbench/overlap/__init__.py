"""Overlap of communication and computation in traces of the PyTorch profiler.

events, kernels, trace   a trace, streamed; kernels that communicate; the GPU work
intervals, exposed       exposed communication, overlap and idle time, exactly; waiting and moving, by a recording
report                   all that as text and JSON
"""
