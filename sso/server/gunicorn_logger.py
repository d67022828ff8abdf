"""gunicorn's logger, without formatting access log lines that are not written."""

from gunicorn import glogging


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """Once its log is configured, gunicorn puts together a line for each request, to drop it."""

    @property
    def access_log_enabled(self) -> bool:
        """Whether gunicorn is told where to write it; `sso.access` has a line of ours."""
        to_syslog = self.cfg.syslog and not self.cfg.disable_redirect_access_to_syslog
        return bool(self.cfg.accesslog or to_syslog)
