"""``titan-bench kernels``: traffic, code and predicted times of the CUDA kernels, or times on a GPU."""
