"""Values that browsers carry for us, signed with their time."""

from functools import lru_cache

from itsdangerous import TimestampSigner, URLSafeTimedSerializer

from sso import clock


class _Signer(TimestampSigner):
    """Takes the time from our clock."""

    def get_timestamp(self) -> int:
        return clock.timestamp(clock.now())


@lru_cache(maxsize=16)
def serializer(salt: str, *secrets: str) -> URLSafeTimedSerializer:
    """Made once, as that costs more than to verify a value. The last secret signs."""
    # ensure_ascii: a `state` that is not UTF-8 travels as surrogates, which only escapes can hold.
    return URLSafeTimedSerializer(
        list(secrets), salt=salt, signer=_Signer, serializer_kwargs={"ensure_ascii": True}
    )
