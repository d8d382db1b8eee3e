"""C kernels: the machine's compiler, the cache of built libraries, and the call through ctypes."""
