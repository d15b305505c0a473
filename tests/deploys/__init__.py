"""Tests of deploys: the check before a deploy, and rolling from one release to the next."""
