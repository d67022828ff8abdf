"""gunicorn's logger, with escaped lines, and without formatting lines that are not written."""

from typing import Any

from gunicorn import glogging

from sso.observability.logs import CleanFilter


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """Skips the access line of each request, which gunicorn would format only to drop it.

    Lines are escaped because they quote requests, for example the decoded path.
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
