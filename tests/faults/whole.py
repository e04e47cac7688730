"""What is left after a crash, as a reader sees it."""

from engine_registry.errors import NotFound
from engine_registry.registry import Registry
from engine_registry.verify import verify


def assert_engines_whole(registry: Registry) -> None:
    """Every engine that is recorded or released is there to its last byte."""
    for engine in registry.engines.all_engines():
        registry.engines.check_engine(engine)
    for product in registry.releases.products():
        for release in registry.releases.releases(product):
            registry.engines.check_engine(release.content.engine)


def assert_nothing_incomplete_is_visible(registry: Registry) -> None:
    """Invariants 1, 3 and 4, through what a reader sees."""
    report = verify(registry)
    assert report.mismatches == ()
    assert_engines_whole(registry)
    for ref in registry.channels.channels():
        assert registry.channels.state(ref) == registry.channels.replay(ref)


def was_founded(registry: Registry) -> bool:
    """False if the process died before there was a registry at all."""
    try:
        registry.info()
    except NotFound as error:
        return error.name != "registry-missing"
    return True
