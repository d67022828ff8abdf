"""Flask extensions of the pages, unbound; no logic. Commands do without them."""

from flask_login import LoginManager
from flask_wtf import CSRFProtect

login_manager = LoginManager()
csrf = CSRFProtect()
