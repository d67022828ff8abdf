"""Flask extensions, unbound; no logic. Those for pages are in `web.web_extensions`."""

from flask_sqlalchemy import SQLAlchemy

from sso.models.base import Base

db = SQLAlchemy(model_class=Base, session_options={"expire_on_commit": False})
