"""Draining in Django's TestCase and TransactionTestCase, on the database of this run."""

from django.test import TestCase, TransactionTestCase

from .cases import Drains


class InTransaction(Drains, TestCase):
    pass


class WithoutTransaction(Drains, TransactionTestCase):
    pass
