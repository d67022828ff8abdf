"""A receiver in memory."""

from collections.abc import Iterator

import pytest

from tests.support.scim_receivers import InMemory, in_memory


@pytest.fixture
def there() -> Iterator[InMemory]:
    """scim2-server, which the application stands for."""
    with in_memory() as receiver:
        yield receiver
