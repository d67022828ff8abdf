"""The actions of administration on users, groups, applications, keys and tokens: a table for each.

An action is one entry of the table: a page asks first, then one service is called. A new kind of
object is one `Resource`, its list and its page. `Resource.act` and `Resource.edit` are the views of
its forms.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.access import Staff
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ConfirmForm, EditForm
from sso.flow import permissions
from sso.flow.permissions import Needs
from sso.i18n import N_
from sso.i18n.message import Message
from sso.services import changes
from sso.services.changes import Differences

T = TypeVar("T")
_CHANGED = Message("Someone else has changed this in the meantime. Nothing was deleted.")
_UNSENT = "not-sent"
_NO_EMAIL = N_(
    "No email is sent: this address has had too many within the last hour, or receives none."
)


@dataclass(frozen=True, kw_only=True)
class Action(Generic[T]):
    """The action of a button.

    `question`: a text, which may use the variables of the resource, or a function. `done`: the
    message on the next page. `run`: the service call. `needs`: the permissions of which one is
    needed, besides that for the page. `applies`: False if the action does not apply now.
    `refusal`: why the service would refuse it; then there is no button. `ends`: the access that it
    ends. `version`: the state that the page shows, as text; `run` receives the
    version on which the decision was based. `sends_mail`: `run` returns False if no email is sent.
    `is_removal`: the next page is the list.
    """

    label: str
    question: str | Callable[[T], str]
    done: str
    run: Callable[..., Any]
    applies: Callable[[T], bool] = lambda _: True
    refusal: Callable[[Actor, T], str | None] = lambda _actor, _item: None
    ends: Sequence[str] = ()
    warnings: Callable[[T], Iterable[str]] = lambda _: ()
    version: Callable[[T], str] | None = None
    is_danger: bool = False
    needs: Needs = permissions.NONE
    is_removal: bool = False
    sends_mail: bool = False
    after_commit: Callable[[], object] = lambda: None

    def is_for(self, staff: Staff) -> bool:
        """Return whether the visitor may carry it out, at least on some objects."""
        return not self.needs or any(map(staff.holds, self.needs))

    def holds_for(self, staff: Staff, groups: Collection[str] | None) -> bool:
        """Return whether the visitor may carry it out on a person in these groups."""
        rights = staff.rights
        held = rights.permissions if groups is None else rights.over(groups)
        return not self.needs or not held.isdisjoint(self.needs)


@dataclass(frozen=True)
class Button:
    """A link to the page that asks before an action. `question`: what the action does."""

    label: str
    question: str
    link: str
    is_danger: bool


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[T]):
    """A kind of object that administration manages, such as users.

    `section`: the endpoint of the list. `page`: the endpoint of the page of one object, and `query`
    its parameters; without it, the list is the only page. `find`: returns the object in the URL, or
    ends the view with 404. `name`: the variable in templates. `title`: added to the titles of
    forms. `variables`: the variables of questions. `may_act`: returns whether the visitor may act
    on the object. `groups`: returns the groups of a person, for whom permissions may hold or not.
    `results`: messages for `?done=…`, besides those of the actions.
    """

    section: str
    page: str | None = None
    query: Callable[[T], Mapping[str, str]] = lambda _: {}
    find: Callable[[], T]
    name: str = "item"
    title: Callable[[T], str] = lambda _: ""
    variables: Callable[[T], Mapping[str, str]] = lambda _: {}
    may_act: Callable[[Staff, T], bool] = lambda _staff, _item: True
    groups: Callable[[T], Collection[str] | None] = lambda _: None
    actions: Mapping[str, Action[T]] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)

    @property
    def done_texts(self) -> dict[str, str]:
        """Return the messages after a redirect, by the value of `?done=…`."""
        texts = {name: action.done for name, action in self.actions.items()}
        return {**texts, **self.results, _UNSENT: _NO_EMAIL}

    def offered(self, item: T) -> dict[str, Action[T]]:
        """Return the actions that the visitor may carry out on an item, by name."""
        staff = access.staff()
        return {
            name: action
            for name, action in self.actions.items()
            if self.may_act(staff, item)
            and action.holds_for(staff, self.groups(item))
            and action.applies(item)
        }

    def buttons(self, item: T, endpoint: str) -> list["Button"]:
        """Return the buttons for the offered actions, which this endpoint carries out.

        Those that the service would refuse have none.
        """
        actor = access.staff().actor
        return [
            Button(
                action.label,
                self._question(action, item),
                admin_page.url(endpoint, **self.query(item), do=name),
                action.is_danger,
            )
            for name, action in self.offered(item).items()
            if action.refusal(actor, item) is None
        ]

    def url(self, item: T) -> str:
        """Return the URL of an item's page, or of the list."""
        return (
            admin_page.url(self.page, **self.query(item))
            if self.page
            else admin_page.url(self.section)
        )

    def render(self, template: str, **more: Any) -> Response:
        """Render one of its pages. Commits."""
        return admin_page.render(template, self.section, done=self.done_texts, **more)

    def done(self, result: str, item: T | None = None) -> Response:
        """Commit, and redirect to the item's page or to the list, with a message."""
        if item is None or self.page is None:
            return admin_page.done(self.section, result)
        return admin_page.done(self.page, result, **self.query(item))

    def act(self, name: str | None = None) -> Response:
        """Ask before an action, then carry it out. `name`: by default from `?do=…`."""
        name = name or request.args.get("do", "")
        item, form = self.find(), ConfirmForm()
        action = self.offered(item).get(name) or abort(404)
        with Refusal() as refusal:
            if form.validate_on_submit():
                result = self._run(action, item, form)
                is_unsent = action.sends_mail and result is False
                response = self.done(
                    _UNSENT if is_unsent else name, None if action.is_removal else item
                )
                action.after_commit()
                return response
        if refusal.is_refused:  # show the current state
            item = self.find()
            action = self.offered(item).get(name) or abort(404)
        if action.version:
            form.seen.data = action.version(item)
        return self._ask(action, item, form, refusal)

    def _run(self, action: Action[T], item: T, form: ConfirmForm) -> Any:
        actor: Actor = access.staff().actor
        return action.run(actor, item, *([form.seen.data or ""] if action.version else []))

    def _ask(self, action: Action[T], item: T, form: ConfirmForm, refusal: Refusal) -> Response:
        label, title = gettext(action.label), self.title(item)
        return admin_page.render(
            "admin/ask.html",
            self.section,
            form=form,
            title=f"{label} · {title}" if title else label,
            question=self._question(action, item),
            button=label,
            back=self.url(item),
            ends=action.ends,
            is_danger=action.is_danger,
            errors=[_CHANGED] if refusal.differences else refusal.errors,
            warnings=action.warnings(item),
        )

    def _question(self, action: Action[T], item: T) -> str:
        if isinstance(action.question, str):
            return str(gettext(action.question, **self.variables(item)))
        return action.question(item)

    def edit(
        self,
        template: str,
        *,
        form_of: Callable[[T], EditForm],
        described: Callable[[T], dict[str, Any]],
        save: Callable[[Actor, T, Differences, dict[str, Any]], object],
        **more: Any,
    ) -> Response:
        """Edit an item with a form. If others have changed it meanwhile, show that first.

        `described`: returns the current values of the form's fields. `save`: the service call, with
        the actor, the item, the changes, and the values that the page showed.
        """
        item = self.find()
        form, now = form_of(item), described(item)
        if not form.is_submitted():
            form.show(now)
        expected = form.shown_values() or now
        form.remember(expected)
        with Refusal() as refusal:
            if form.validate_on_submit():
                if differences := changes.between(expected, form.read()):
                    save(access.staff().actor, item, differences, expected)
                return self.done("edited", item)
        if refusal.is_refused:
            item = self.find()
        if refusal.differences:
            form.merge(expected, described(item))
        return admin_page.form_page(
            template, self.section, form, refusal, form.title_of, **{self.name: item}, **more
        )
