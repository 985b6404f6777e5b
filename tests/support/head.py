"""A Ray cluster of four workers on this machine, for tests to share: prints its address, ends with its input."""

import os
import sys

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # or it listens on the machine's own address
os.environ["RAY_worker_niceness"] = "0"  # Ray's workers give way to everything else, and tests wait  # noqa: SIM112

import ray

if __name__ == "__main__":
    ray.init("local", num_cpus=4, include_dashboard=False, object_store_memory=2**27, log_to_driver=False)
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
