"""Run a node of Kubernetes whose containers are local processes.

It does what a kubelet does to a pod: init containers, native sidecars, probes, restarts with
backoff, status, and the end of a pod in the kubelet's order (see `ending`). What it lacks:

- There are no images: a container's `command` and `args` run here, `image` is only shown.
- Volumes, ConfigMaps, Secrets and resource limits do not exist. All containers of a pod have the
  pod's own folder as their working folder, so they can share files there.
- Each pod has a network namespace of its own where that is permitted (as root), else the host's
  network, as pods with `hostNetwork` always have. There are no Services and no DNS.

One thread runs it all (asyncio). So PR_SET_PDEATHSIG holds for every container: if the node is
killed, the kernel kills its containers, as when a machine loses its power.
"""
