"""Actions on several objects of a list at once: ask, then carry one out on all or on none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from flask_babel import format_decimal, gettext
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import SelectionForm
from sso.i18n import N_
from sso.i18n.message import Message
from sso.services.checks import Invalid
from sso.store.lists import PAGE

T = TypeVar("T")
DONE = "several"  # the result of all of them
_NONE = Message("Choose at least one entry.")
SAVED = N_("The changes were saved for the entries that you chose.")


class Row(NamedTuple):
    """An object on the page that asks. `refusal`: why the action is not possible, if it would be
    refused.
    """

    key: str
    title: str
    detail: str
    applies: bool
    refusal: str | None


@dataclass(frozen=True, kw_only=True)
class Several(Generic[T]):
    """What a list offers for the objects that are ticked.

    `tasks`: names of actions of the resource. `find`: returns the objects with these ids, without
    those that are gone. `line`: the id, title and detail of an object. `name`: the field of the
    form with the ids. `none`: the error if nothing is ticked. `count`: how many objects the action
    applies to. `lock`: locks what the actions change, in the order in which everybody does.
    `page`: the endpoint of the page with the list, unless it is the section's. `run`: carries an
    action out on all at once, in place of one after the other. `done`: the result.
    """

    resource: Resource[T]
    tasks: Sequence[str]
    find: Callable[[Sequence[str]], Iterable[T]]
    line: Callable[[T], tuple[str, str, str]]
    name: str = "item"
    none: Message = _NONE
    count: str = N_("Entries that this applies to: %(count)s")
    lock: Callable[[Iterable[str]], object] = lambda _: None
    page: str = ""
    run: Callable[[str, Actor, Sequence[T]], object] | None = None
    done: str = DONE

    @property
    def labels(self) -> dict[str, str]:
        """Return the titles of the actions, by name."""
        return {name: self.resource.actions[name].label for name in self.tasks}

    def act(self, form: SelectionForm, query: Mapping[str, str]) -> Response | None:
        """Ask or act if the form names an action. `query`: the filters of the list, to return."""
        name = form.do.data or ""
        if name not in self.tasks:
            return None
        chosen = self._chosen(form)
        with Refusal() as refusal:
            if not chosen:
                raise Invalid([self.none])
            if form.validate_on_submit() and form.is_confirmed.data:
                self._run(name, chosen)
                return admin_page.done(self.page or self.resource.section, self.done, **query)
        if refusal.is_refused:
            chosen = self._chosen(form)
        back = admin_page.url(self.page or self.resource.section, **query)
        return self._ask(name, chosen, form, refusal, back)

    def _chosen(self, form: SelectionForm) -> list[T]:
        """Return the objects that the form names, at most a page of them, by title."""
        ids = (form[self.name].data or ())[:PAGE]
        return sorted(self.find(ids), key=self._place)

    def _place(self, item: T) -> tuple[str, str]:
        key, title, _ = self.line(item)
        return title.casefold(), key

    def _run(self, name: str, chosen: Sequence[T]) -> None:
        actor, by_id = access.staff().actor, {self.line(item)[0]: item for item in chosen}
        self.lock(by_id)
        # In one order, so that two administrators do not wait for each other.
        items = [by_id[key] for key in sorted(by_id)]
        items = [item for item in items if name in self.resource.offered(item)]
        if self.run:
            self.run(name, actor, items)
            return
        for item in items:
            self.resource.actions[name].run(actor, item)

    def _ask(
        self, name: str, chosen: Sequence[T], form: SelectionForm, refusal: Refusal, back: str
    ) -> Response:
        action = self.resource.actions[name]
        rows = [self._row(name, item) for item in chosen]
        applicable = format_decimal(sum(row.applies for row in rows))
        return admin_page.form_page(
            "admin/selected.html",
            self.resource.section,
            form,
            refusal,
            task=action.label,
            name=self.name,
            count=gettext(self.count, count=applicable),
            rows=rows,
            ends=action.ends,
            is_danger=action.is_danger,
            back=back,
        )

    def _row(self, name: str, item: T) -> Row:
        is_offered, action = name in self.resource.offered(item), self.resource.actions[name]
        return Row(*self.line(item), *applicability(action, item, is_offered=is_offered))


def applicability(
    action: Action[T] | None, item: T, *, is_offered: bool
) -> tuple[bool, str | None]:
    """Return whether an action applies to an object, and why the service would refuse it."""
    refusal = action.refusal(access.staff().actor, item) if action and is_offered else None
    return is_offered and refusal is None, refusal


def uuids(texts: Iterable[str]) -> list[UUID]:
    """Return the ids that are UUIDs; the form of a list has no others."""
    return [value for text in texts if (value := _uuid(text))]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
