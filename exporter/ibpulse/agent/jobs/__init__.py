"""The jobs that run on this node, and those of its ports that carry their traffic.

cgroups  the jobs that have cgroups of Slurm or of a kubelet
files    the jobs in files that prologs write
owners   leads from GPUs and devices to ports
watch    reads all of them in threads, merges what they find, and records what changed since the reading before
"""
