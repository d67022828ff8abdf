"""gunicorn's logger: its lines are clean, and those that are not written are not formatted."""

from typing import Any

from gunicorn import glogging

from sso.observability.logs import CleanFilter


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """Once its log is configured, gunicorn puts together a line for each request, to drop it.

    Its lines quote requests: the decoded path in the access log, for example.
    """

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for log in (self.error_log, self.access_log):
            if not any(isinstance(filter_, CleanFilter) for filter_ in log.filters):
                log.addFilter(CleanFilter())

    @property
    def access_log_enabled(self) -> bool:
        """Whether gunicorn is told where to write it; `sso.access` has a line of ours."""
        to_syslog = self.cfg.syslog and not self.cfg.disable_redirect_access_to_syslog
        return bool(self.cfg.accesslog or to_syslog)
