"""Django projects with django-allauth and with mozilla-django-oidc."""

import pytest
from playwright.sync_api import Page, expect

from tests.applications.conftest import (
    ADMINS,
    DANA,
    DESKS,
    SAM,
    Connect,
    give_roles_and_desk,
    press,
    sign_in,
    sign_out,
)
from tests.applications.software import Application, python
from tests.support.processes import Server

# The project's own page, as every project has one.
PAGES = '''
from django.http import HttpResponse
from django.template import engines

PAGE = """{load}
<p id=user>{{{{ user.get_full_name }}}} {{{{ user.email }}}}</p>
<p id=staff>{{{{ user.is_staff }}}} {{{{ user.is_superuser }}}}</p>
<p id=desk>{{{{ user.socialaccount_set.first.extra_data.userinfo.desk }}}}</p>
<a href="{sign_in}">Sign in</a>
<form method=post action="{sign_out}">{{% csrf_token %}}<button>Sign out</button></form>"""

def home(request):
    return HttpResponse(engines["django"].from_string(PAGE).render({{}}, request))

urlpatterns = [*urlpatterns, path("", home)]
'''


def project(app: Application, load: str, sign_in: str, sign_out: str) -> None:
    """A new project, with what the preset says at the end of its files."""
    app.uses(python("django"))
    app.run("Packages")
    app.shell("django-admin startproject site_ . ")
    app.write("settings.py", "site_/settings.py")
    app.write("urls.py", "site_/urls.py")
    with (app.folder / "site_/urls.py").open("a") as file:
        file.write(PAGES.format(load=load, sign_in=sign_in, sign_out=sign_out))


def test_django_allauth(connect: Connect, page: Page, server: Server) -> None:
    app = connect("django-allauth", "--option", f"admin_group={ADMINS}")
    project(
        app,
        load="{% load socialaccount %}",
        sign_in="{% provider_login_url 'sso' %}",
        sign_out="{% url 'account_logout' %}",
    )
    app.write("sso_adapter.py")
    app.run("Tables, and a link to sign in")
    with app.running("python", "manage.py", "runserver", "--noreload", str(app.port)):
        page.goto(app.url)
        press(page.get_by_role("link", name="Sign in"))
        press(page.get_by_role("button", name="Continue"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        expect(page.locator("#user")).to_have_text(f"{DANA.name} {DANA.email}")
        expect(page.locator("#staff")).to_have_text("True True")
        page.goto(f"{app.url}/admin/")
        expect(page.get_by_role("heading", name="Site administration")).to_be_visible()
        page.goto(app.url)
        press(page.get_by_role("button", name="Sign out"))
        sign_out(page)
        expect(page).to_have_url(f"{app.url}/")
        expect(page.locator("#user")).to_have_text("")
        page.goto(f"{app.url}/accounts/oidc/sso/login/")
        press(page.get_by_role("button", name="Continue"))
        sign_in(page, SAM)
        expect(page.locator("#user")).to_have_text(f"{SAM.name} {SAM.email}")
        expect(page.locator("#staff")).to_have_text("False False")
        press(page.get_by_role("button", name="Sign out"))
        sign_out(page)

    # The same with roles and a claim of its own: editors are in the staff, too.
    give_roles_and_desk(app, server)
    adapter = app.folder / "sso_adapter.py"
    before = 'user.is_staff = user.is_superuser = ADMIN_GROUP in userinfo.get("groups", [])'
    assert before in adapter.read_text()
    after = (
        'user.is_staff = "editor" in userinfo["roles"]\n'
        '        user.is_superuser = "admin" in userinfo["roles"]'
    )
    adapter.write_text(adapter.read_text().replace(before, after))
    with app.running("python", "manage.py", "runserver", "--noreload", str(app.port)):
        for person, staff in ((DANA, "True True"), (SAM, "True False")):
            page.goto(f"{app.url}/accounts/oidc/sso/login/")
            press(page.get_by_role("button", name="Continue"))
            sign_in(page, person)
            expect(page.locator("#staff")).to_have_text(staff)
            expect(page.locator("#desk")).to_have_text(DESKS[person])
            press(page.get_by_role("button", name="Sign out"))
            sign_out(page)


@pytest.mark.exhaustive
def test_mozilla_django_oidc(connect: Connect, page: Page) -> None:
    app = connect("django-mozilla", "--option", f"admin_group={ADMINS}")
    project(
        app,
        load="",
        sign_in="{% url 'oidc_authentication_init' %}",
        sign_out="{% url 'oidc_logout' %}",
    )
    app.write("sso_auth.py")
    app.shell("python manage.py migrate")
    with app.running("python", "manage.py", "runserver", "--noreload", str(app.port)):
        page.goto(app.url)
        press(page.get_by_role("link", name="Sign in"))
        sign_in(page, DANA)
        expect(page).to_have_url(f"{app.url}/")
        expect(page.locator("#user")).to_have_text(f"{DANA.name} {DANA.email}")
        expect(page.locator("#staff")).to_have_text("True True")
        page.goto(f"{app.url}/admin/")
        expect(page.get_by_role("heading", name="Site administration")).to_be_visible()
        page.goto(app.url)
        press(page.get_by_role("button", name="Sign out"))
        expect(page).to_have_url(f"{app.url}/")
        expect(page.locator("#user")).to_have_text("")
        page.goto(f"{app.url}/oidc/authenticate/")
        sign_in(page, SAM)
        expect(page.locator("#user")).to_have_text(f"{SAM.name} {SAM.email}")
        expect(page.locator("#staff")).to_have_text("False False")
