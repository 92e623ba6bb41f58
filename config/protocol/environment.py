"""The environment variables of a container with GPU memory, each once, with their readers. The device plugin sets them.

`names.MEM_IDX`, `MEM_POD` and `MEM_DEV` are environment variables too, under the names of the annotations.
"""

from typing import Final

# Read by applications: their share on one card. _CONTAINER / _DEV is the fraction of the card that they may use.
MEM_CONTAINER: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
CARD_UUIDS: Final = "GPUSHARE_CARD_UUIDS"  # comma list

# Read by NVIDIA's container runtime hook.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
VISIBLE_NONE: Final = "void"  # the hook leaves such a container alone

# Read by the cGPU kernel module, set where the node has the label with the value "true".
CGPU_DISABLE: Final = "CGPU_DISABLE"
CGPU_DISABLE_LABEL: Final = "cgpu.disable.isolation"
TRUE: Final = "true"
