"""perfkit: where a PyTorch step spends its time, how far each part is from what the machine can do, and what helps."""

__version__ = "0.1.0"
