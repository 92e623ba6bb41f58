"""Environment variables that the device plugin sets in containers with GPU memory, and the readers of each.

`names.MEM_IDX`, `MEM_POD` and `MEM_DEV` are environment variables too, with the names of the annotations.
"""

from typing import Final

# Read by applications: their share on one card. _CONTAINER / _DEV is the fraction of the card that they may use.
MEM_CONTAINER: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CARD_UUIDS: Final = "GPUSHARE_CARD_UUIDS"  # comma list

# Read by NVIDIA's container runtime hook.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VISIBLE_NONE: Final = "void"  # the hook ignores such a container

# Read by the hook apply-cuda-memory-limits of NVIDIA's container toolkit, in MiB, for every card of the container.
# Without a request, the hook sets one as large as the limit.
GPU_MEMORY_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"
GPU_MEMORY_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"

# Read by the cGPU kernel module; set if the node's label has the value "true".
CGPU_DISABLE: Final = "CGPU_DISABLE"
CGPU_DISABLE_LABEL: Final = "cgpu.disable.isolation"
TRUE: Final = "true"
