"""Which input broke it: builds and gates between a good lock and a bad one."""
