"""Actions of the admin, made from the table of verbs."""

from collections import Counter

from django.contrib import messages
from django.core.exceptions import PermissionDenied

from ..exceptions import ATPError
from ..verbs.table import VERBS
from ..web import authorization, permissions
from ..web.actor import ADMIN, actor

# The most rows of one action. A confirmation has a form field for each row, and Django accepts
# 1000 fields.
MOST = 500


class VerbActions:
    """A mixin of admins: it adds an action for each verb without parameters or a question."""

    kind = None

    def get_actions(self, request, action_location=None):
        # Django before 6.1 knows no location.
        where = {} if action_location is None else {"action_location": action_location}
        found = super().get_actions(request, **where)
        for verb in self.verbs() if "_popup" not in request.GET else ():
            if not permissions.lacking(request.user, verb.needs):
                action = self.get_action(_action(verb), **where)
                # None: Django offers it at another location alone.
                if action is not None:
                    found[verb.id] = action
        return found

    def verbs(self):
        """Return the verbs that become actions."""
        return [verb for verb in VERBS[self.kind].values() if not verb.has_page]

    def subject_of(self, row):
        """Return the subject of the verbs for a row of the model."""
        return row

    def chosen(self, request, queryset, is_allowed):
        """Return the rows whose state allows an action; tell the user how many do not."""
        rows = list(queryset.order_by("pk")[: MOST + 1])
        if len(rows) > MOST:
            told = f"At most {MOST} at a time; manage.py atp takes any number."
            self.message_user(request, told, messages.ERROR)
            return []
        chosen = [row for row in rows if is_allowed(row)]
        if left := len(rows) - len(chosen):
            told = f"Left alone, as their state does not allow it: {left}"
            self.message_user(request, told, messages.WARNING)
        return chosen


def _action(verb):
    def act(self, request, queryset):
        outcomes = Counter()
        allowed = getattr(verb, "is_allowed", lambda _: True)
        for row in self.chosen(request, queryset, allowed):
            subject = self.subject_of(row)
            lacking = permissions.lacking(request.user, verb.permissions(subject))
            if lacking:
                told = f"{row}: {permissions.refusal(lacking)}"
                self.message_user(request, told, messages.WARNING)
                continue
            try:
                authorization.require_operation(request.user, verb, subject, {})
            except PermissionDenied as error:
                self.message_user(request, f"{row}: {error}", messages.WARNING)
                continue
            try:
                outcome = verb.perform(subject, actor(request, ADMIN))
            except ATPError as error:  # another user has changed this row meanwhile
                self.message_user(request, str(error), messages.WARNING)
            else:
                outcomes[outcome.told] += 1
        for told, count in outcomes.items():
            self.message_user(request, f"{verb.label} ({count}): {told}", messages.SUCCESS)

    act.__name__ = verb.id
    act.short_description = f"{verb.label}: {verb.explanation}"
    return act
