"""Steps and servers in containers, through the Docker Engine.

Each container has a small process of this package as its keeper (`keeper`), which runs under
`runners.guard` as any other step does: it starts the container, passes its output on, and removes
it whatever happens to the process that wanted it. What even a killed keeper leaves behind carries
labels that say whose it was, and the next keeper or `enginectl doctor --clean` removes it.
"""
