"""Errors of the server: each says whose fault it is, in HTTP's words and in gRPC's."""

from __future__ import annotations

from bireme.core.errors import BiremeError


class ServingError(BiremeError, RuntimeError):
    """A request or a model that cannot be served. The status is HTTP's, the code gRPC's."""

    status = 500
    code = "INTERNAL"


class BadRequest(ServingError, ValueError):
    """A request that is wrong in itself."""

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServingError):
    """A request without a token that is known."""

    status, code = 401, "UNAUTHENTICATED"


class Forbidden(ServingError):
    """A request for what this server was not started with."""

    status, code = 403, "PERMISSION_DENIED"


class NotFound(ServingError, LookupError):
    """A model, version or address that is not there."""

    status, code = 404, "NOT_FOUND"


class WrongMethod(ServingError):
    """An address that takes another method."""

    status, code = 405, "UNIMPLEMENTED"


class TooSlow(ServingError):
    """A client that does not send the rest of its request."""

    status, code = 408, "DEADLINE_EXCEEDED"


class TooLarge(ServingError):
    """A body above the limit."""

    status, code = 413, "RESOURCE_EXHAUSTED"


class Overloaded(ServingError):
    """A queue that is full, or so long that the answer would come too late."""

    status, code = 429, "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after: float = 1.0):
        super().__init__(message)
        self.retry_after = max(retry_after, 0.0)


class Expired(ServingError, TimeoutError):
    """A request whose time was over before it ran."""

    status, code = 504, "DEADLINE_EXCEEDED"


class Unavailable(ServingError):
    """A model that is not loaded, or a server that is shutting down."""

    status, code = 503, "UNAVAILABLE"


class ModelFailed(ServingError):
    """A model that raised an error, or whose results do not fit its signature."""


class ClientGone(ServingError):
    """A client that no longer waits for its answer."""

    status, code = 499, "CANCELLED"
