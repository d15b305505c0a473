"""Fields of forms."""

from django import forms

from .. import wording


class MomentField(forms.CharField):
    """A time, or a delay from now."""

    def clean(self, value):
        value = super().clean(value).strip()
        try:
            return wording.read_moment(value) if value else None
        except ValueError as error:
            raise forms.ValidationError(f"{error}.") from None
