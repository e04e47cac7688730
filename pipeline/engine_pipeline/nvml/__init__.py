"""GPUs as the NVIDIA driver's management library (NVML) reports them."""
