"""Flask extensions, unbound; no logic."""

from flask_login import LoginManager
from flask_sqlalchemy import SQLAlchemy
from flask_wtf import CSRFProtect

from sso.models.base import Base

db = SQLAlchemy(model_class=Base, session_options={"expire_on_commit": False})
login_manager = LoginManager()
csrf = CSRFProtect()
