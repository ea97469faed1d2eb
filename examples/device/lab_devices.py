"""GPUs of our own laboratory, in the form of Curvescope's own `devices.toml`; sources and all.

curvescope doctor --card lab_gpu
"""

from pathlib import Path

DEVICES = Path(__file__).with_name("lab_devices.toml")
